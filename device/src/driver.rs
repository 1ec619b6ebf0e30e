//! The CUDA driver: whether it is there, which GPU is this rank's, and its errors in words.
//!
//! The driver is loaded when a program asks for a device. Knows no heap and no peers.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use crate::error::{Error, Result};
use cudarc::driver::{CudaContext, DriverError, sys};
use spmd::bootstrap::node::Chosen;
use std::{
    ffi::{CString, c_int},
    sync::Arc,
};

/// A GPU that this rank uses.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) name: String,
    /// Why this one.
    pub(crate) why: String,
}

/// Puts an error of the driver into words.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(DriverError) -> Error {
    let what = what.into();
    move |error| Error::Driver {
        what,
        name: error.error_name().map_or_else(|_| format!("{error:?}"), |name| name.to_string_lossy().into_owned()),
        text: error.error_string().map_or_else(|_| "unknown".into(), |text| text.to_string_lossy().into_owned()),
    }
}

/// Whether a GPU can be asked for at all.
pub(crate) fn present() -> Result<()> {
    // SAFETY: tries to load the driver, whose initializers may run.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(Error::NoDriver) }
}

impl Gpu {
    /// The GPU that the launcher chose for the rank, else the one whose number is the rank's place on its host.
    pub(crate) fn open(chosen: Option<&Chosen>, place_on_host: usize) -> Result<Self> {
        present()?;
        let count = count()?;
        let by_launcher = chosen.and_then(|chosen| Some((ordinal_at(&chosen.pci)?, chosen)));
        let (ordinal, why) = match by_launcher {
            Some((ordinal, chosen)) => (ordinal, format!("chosen by the launcher: {}", chosen.distance)),
            None => {
                let ordinal = place_on_host % count;
                (ordinal, format!("number {ordinal} of {count} for place {place_on_host} on this host"))
            }
        };
        let context = CudaContext::new(ordinal).map_err(failed(format!("opening GPU {ordinal}")))?;
        let name = context.name().map_err(failed("asking for the GPU's name"))?;
        Ok(Gpu { context, name, why })
    }

    /// Makes the GPU's context that of the calling thread.
    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(failed("binding a thread to the GPU"))
    }

    pub(crate) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32> {
        self.context.attribute(attribute).map_err(failed("asking for an attribute of the GPU"))
    }

    /// Cycles of the processors' clock in a second.
    pub(crate) fn clock_rate(&self) -> Result<u64> {
        let kilohertz = self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        Ok(u64::try_from(kilohertz).unwrap_or(0).max(1000) * 1000)
    }

    /// Whether processes share this GPU through MPS; none when the driver does not say.
    pub(crate) fn has_mps(&self) -> Option<bool> {
        /// `CU_DEVICE_ATTRIBUTE_MPS_ENABLED`, which the bindings for our oldest driver do not name.
        const MPS_ENABLED: c_int = 133;
        type Ask = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
        // SAFETY: the driver, which is loaded already.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }.ok()?;
        // SAFETY: as the driver's header declares it, with the attribute as the number that an enumerator is.
        let ask = unsafe { library.get::<Ask>(b"cuDeviceGetAttribute\0") }.ok()?;
        let mut answer = 0;
        // SAFETY: the pointer is to our own variable.
        let code = unsafe { ask(&raw mut answer, MPS_ENABLED, self.context.cu_device()) };
        (code == 0).then_some(answer != 0)
    }

    pub(crate) fn processors(&self) -> Result<u32> {
        let count = self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(u32::try_from(count).unwrap_or(1).max(1))
    }
}

fn count() -> Result<usize> {
    let none = || Error::NoGpu { visible: std::env::var("CUDA_VISIBLE_DEVICES").ok() };
    match CudaContext::device_count() {
        Ok(count) => usize::try_from(count).ok().filter(|count| *count > 0).ok_or_else(none),
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => Err(none()),
        Err(error) => Err(failed("initializing the CUDA driver")(error)),
    }
}

/// The driver's number for the GPU at a PCI address; none when it is hidden from this process.
fn ordinal_at(pci: &str) -> Option<usize> {
    let pci = CString::new(pci).ok()?;
    let mut device = 0;
    // SAFETY: the address is a terminated text, and the driver has been initialized by `count`.
    unsafe { sys::cuDeviceGetByPCIBusId(&raw mut device, pci.as_ptr()) }.result().ok()?;
    usize::try_from(device).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_a_program_that_asks_for_a_device_is_told_so() {
        if present().is_ok() {
            return;
        }
        let error = Gpu::open(None, 0).expect_err("there is no driver");
        assert!(matches!(error, Error::NoDriver), "{error}");
        assert!(error.to_string().contains("libcuda.so.1"), "{error}");
    }
}
