//! A release embeds the built front end; cargo does not watch it by itself.

fn main() {
    println!("cargo:rerun-if-changed=../../ui/dist");
}
