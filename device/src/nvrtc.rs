//! The compiler for CUDA C++ at run time (NVRTC), loaded when a kernel is compiled from its source.

#![expect(unsafe_code, reason = "calls of a library that is loaded at run time")]

use crate::{
    error::{Error, Result},
    header::HEADERS,
};
use libloading::Library;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::Path,
};

/// The library's names, newest first.
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "libnvrtc.so.11.2"];

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type CompileProgram = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;

/// NVRTC, loaded.
#[derive(Debug)]
pub struct Nvrtc {
    library: Library,
}

impl Nvrtc {
    /// Loads it: from `path`, or by its usual names, which the system's loader looks for (`LD_LIBRARY_PATH` included).
    ///
    /// # Errors
    /// When it is not there.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let names = match path {
            Some(path) => vec![path.as_os_str().to_owned()],
            None => NAMES.iter().map(Into::into).collect(),
        };
        let tried = names.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ");
        names
            .iter()
            // SAFETY: a library whose initializers may run anywhere.
            .find_map(|name| unsafe { Library::new(name) }.ok())
            .map(|library| Nvrtc { library })
            .ok_or_else(|| Error::Compile {
                reason: format!(
                    "NVRTC is not there (tried {tried}): it is part of the CUDA toolkit and of the Python package \
                     nvidia-cuda-nvrtc; name it with `--set device.nvrtc=PATH`, or load PTX or a cubin instead"
                ),
            })
    }

    /// Compiles a source that may include `spmd_device.cuh`, for `architecture`: `sm_90` gives a cubin, `compute_80` gives
    /// PTX (with a zero at its end). `defines` are names with values.
    ///
    /// # Errors
    /// With the compiler's messages.
    pub fn compile(&self, source: &str, architecture: &str, defines: &[(&str, &str)]) -> Result<Vec<u8>> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::Compile { reason: "the source has a zero byte in it".into() })
        };
        let source = text(source)?;
        let headers = HEADERS.iter().map(|(_, header)| text(header)).collect::<Result<Vec<_>>>()?;
        let names = HEADERS.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>>>()?;
        let mut options = vec![text(&format!("--gpu-architecture={architecture}"))?, text("--std=c++17")?];
        for (name, value) in defines {
            options.push(text(&format!("-D{name}={value}"))?);
        }
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (headers, names, options) = (pointers(&headers), pointers(&names), pointers(&options));
        let count = |list: &[*const c_char]| c_int::try_from(list.len()).expect("few headers and options");
        let mut program = std::ptr::null_mut();
        // SAFETY: the signatures are those of nvrtc.h; all texts are terminated and live until the end of this function.
        unsafe {
            let result = self.function::<Create>("nvrtcCreateProgram")?(
                &raw mut program,
                source.as_ptr(),
                c"kernel.cu".as_ptr(),
                count(&headers),
                headers.as_ptr(),
                names.as_ptr(),
            );
            self.done(result)?;
            let compiled =
                self.function::<CompileProgram>("nvrtcCompileProgram")?(program, count(&options), options.as_ptr());
            let output = if compiled != 0 {
                let log = self.read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
                let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_string();
                Err(Error::Compile { reason: format!("{}:\n{log}", self.text(compiled)?) })
            } else if architecture.starts_with("sm_") {
                self.read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
            } else {
                self.read(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
            };
            self.function::<Destroy>("nvrtcDestroyProgram")?(&raw mut program);
            output
        }
    }

    /// # Safety
    /// `program` is alive, and both names are functions of those types.
    unsafe fn read(&self, program: Program, size: &str, get: &str) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: as promised by the caller.
        self.done(unsafe { self.function::<Size>(size)?(program, &raw mut bytes) })?;
        let mut output = vec![0_u8; bytes];
        // SAFETY: there is room for as many bytes as the library said.
        self.done(unsafe { self.function::<Get>(get)?(program, output.as_mut_ptr().cast()) })?;
        Ok(output)
    }

    /// # Safety
    /// The function of that name has this type.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F> {
        // SAFETY: as promised by the caller.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|error| Error::Compile { reason: format!("this NVRTC has no {name}: {error}") })
    }

    fn done(&self, result: c_int) -> Result<()> {
        if result == 0 { Ok(()) } else { Err(Error::Compile { reason: self.text(result)? }) }
    }

    fn text(&self, result: c_int) -> Result<String> {
        // SAFETY: the signature is that of nvrtc.h; the text is static.
        let text = unsafe { CStr::from_ptr(self.function::<ErrorText>("nvrtcGetErrorString")?(result)) };
        Ok(text.to_string_lossy().into_owned())
    }
}
