//! A window to drag a file out of, as file managers have them: `drag_source X Y FILE`. It says `ready` once it is there, and
//! ends with the drag.

#![cfg_attr(
    target_os = "linux",
    expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's program says why it fails and ends")
)]

#[cfg(target_os = "linux")]
fn main() {
    use gtk::gdk::{DragAction, ModifierType};
    use gtk::prelude::{GtkWindowExt, WidgetExt, WidgetExtManual};
    use gtk::{TargetEntry, TargetFlags, Window, WindowType, glib};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [x, y, file] = arguments.as_slice() else { panic!("drag_source X Y FILE") };
    gtk::init().expect("no display");
    let uri = glib::filename_to_uri(file, None).unwrap();
    // One that no window manager places elsewhere.
    let window = Window::new(WindowType::Popup);
    window.set_default_size(60, 60);
    window.move_(x.parse().unwrap(), y.parse().unwrap());
    let files = TargetEntry::new("text/uri-list", TargetFlags::empty(), 0);
    window.drag_source_set(ModifierType::BUTTON1_MASK, &[files], DragAction::COPY);
    window.connect_drag_data_get(move |_, _, data, _, _| {
        data.set_uris(&[&uri]);
    });
    window.connect_drag_end(|_, _| gtk::main_quit());
    window.connect_map(|_| println!("ready"));
    window.show();
    gtk::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {}
