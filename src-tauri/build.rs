//! Embeds the built front end.

fn main() {
    // generate_context! embeds ui/dist, but cargo does not watch it by itself.
    println!("cargo:rerun-if-changed=../ui/dist");
    if !std::path::Path::new("../ui/dist/index.html").is_file() {
        println!(
            "cargo:error=ui/dist is missing. Build the front end first: npm --prefix ui ci && npm --prefix ui run build"
        );
        return;
    }
    tauri_build::build();
}
