//! libibverbs, loaded when it is first asked for: the program starts where it is missing.

#![expect(unsafe_code, reason = "symbols of a C library")]

use super::sys::{Ah, AhAttr, CompChannel, Context, Cq, Device, DeviceAttr, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

/// The name under which every distribution installs it.
const NAME: &CStr = c"libibverbs.so.1";

/// Declares the table of functions and how it is filled.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions that are not part of a device's table.
        #[derive(Debug)]
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Library {
            fn load() -> Result<Self, String> {
                // SAFETY: a NUL-terminated name; the library's initializers are those of rdma-core.
                let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if handle.is_null() {
                    return Err(last_error());
                }
                Ok(Library {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: a handle that is never closed, and a NUL-terminated name.
                        let symbol = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return Err(last_error());
                        }
                        // SAFETY: the symbol is the function that verbs.h declares so.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol)
                        }
                    },)+
                })
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list: fn(*mut *mut Device);
    ibv_get_device_name: fn(*mut Device) -> *const c_char;
    ibv_open_device: fn(*mut Device) -> *mut Context;
    ibv_close_device: fn(*mut Context) -> c_int;
    ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> *mut Pd;
    ibv_dealloc_pd: fn(*mut Pd) -> c_int;
    ibv_reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    // What `ibv_reg_mr` of verbs.h calls for access flags that a device may not know: they are left out there.
    ibv_reg_mr_iova2: fn(*mut Pd, *mut c_void, usize, u64, c_uint) -> *mut Mr;
    ibv_dereg_mr: fn(*mut Mr) -> c_int;
    ibv_create_comp_channel: fn(*mut Context) -> *mut CompChannel;
    ibv_destroy_comp_channel: fn(*mut CompChannel) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    ibv_destroy_cq: fn(*mut Cq) -> c_int;
    ibv_get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut Cq, u32);
    ibv_create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    ibv_query_qp: fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
    ibv_destroy_qp: fn(*mut Qp) -> c_int;
    ibv_create_ah: fn(*mut Pd, *mut AhAttr) -> *mut Ah;
    ibv_destroy_ah: fn(*mut Ah) -> c_int;
    ibv_wc_status_str: fn(c_int) -> *const c_char;
}

/// The library, or why it cannot be used.
pub(super) fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)
}

/// What the dynamic linker has against a library or symbol.
fn last_error() -> String {
    // SAFETY: after a failure it is a NUL-terminated text of this thread, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker does not say why".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The library's words for the status of a completion.
pub(super) fn status_text(status: c_int) -> String {
    let Ok(library) = library() else { return format!("status {status}") };
    // SAFETY: it takes any number and gives a constant text.
    let text = unsafe { (library.ibv_wc_status_str)(status) };
    if text.is_null() {
        return format!("status {status}");
    }
    // SAFETY: NUL-terminated, never freed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
