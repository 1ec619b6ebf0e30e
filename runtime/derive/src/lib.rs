//! `#[derive(Element)]`.
