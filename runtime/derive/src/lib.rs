//! `#[derive(Element)]` for plain structs: see `spmd::Element`.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, parse_macro_input};

/// Implements `spmd::Element` for a `#[repr(C)]` struct of elements without padding.
///
/// The struct must be `Copy`. A missing `#[repr(C)]`, an enum, a generic struct, a field that is no element and padding
/// between fields are errors at compile time.
#[proc_macro_derive(Element)]
pub fn derive_element(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(
            name,
            "Element can be derived for structs only: not every value of an enum or union may arrive",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(&input.generics, "Element cannot be derived for a generic struct"));
    }
    if !has_fixed_layout(input)? {
        return Err(syn::Error::new_spanned(
            name,
            "Element needs #[repr(C)] (or #[repr(transparent)]): the layout must be the same on every rank",
        ));
    }
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let padding = format!("{name} has padding between or after its fields: reorder them or add explicit fields");
    Ok(quote! {
        const _: () = {
            const FIELDS: usize = 0 #(+ ::core::mem::size_of::<#types>())*;
            ::core::assert!(::core::mem::size_of::<#name>() == FIELDS, #padding);
            #[allow(dead_code)]
            fn fields_are_elements() {
                fn is_element<T: ::spmd::Element>() {}
                #(is_element::<#types>();)*
            }
            // SAFETY: every field is an `Element`, for which the all-zero bit pattern is a value.
            unsafe impl ::spmd::element::private::bytemuck::Zeroable for #name {}
            // SAFETY: the layout is fixed, there is no padding (asserted above) and every field is `Pod`.
            unsafe impl ::spmd::element::private::bytemuck::Pod for #name {}
            impl ::spmd::element::private::Sealed for #name {}
            impl ::spmd::Element for #name {
                fn signature() -> ::spmd::element::Signature {
                    ::spmd::element::Signature::of_name("struct")
                        #(.with(<#types as ::spmd::Element>::signature()))*
                }
            }
        };
    })
}

fn has_fixed_layout(input: &DeriveInput) -> syn::Result<bool> {
    let mut fixed = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.path.is_ident("packed") {
                return Err(meta.error("a packed struct cannot be an Element"));
            }
            if meta.input.peek(syn::token::Paren) {
                let _: proc_macro2::Group = meta.input.parse()?;
            }
            Ok(())
        })?;
    }
    Ok(fixed)
}
