//! Examples live in this folder, one program a file.
