//! The native menus. The page says what they hold, in the language that it speaks (`ui/src/lib/menu.ts`); what is chosen goes
//! back to it as an event, so that a menu, a shortcut and the palette do the same.

use serde::Deserialize;
use tauri::menu::{AboutMetadata, IsMenuItem, Menu, MenuItem, PredefinedMenuItem, Submenu};
use tauri::{AppHandle, Emitter, Wry};

/// The event that tells the page which item was chosen.
const CHOSEN: &str = "menu";
/// The item that ends the program where the system has none.
const QUIT: &str = "quit";

/// One menu of the bar, or one inside another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Described {
    text: String,
    items: Vec<Item>,
}

/// One line of a menu.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "item", rename_all = "kebab-case")]
enum Item {
    /// Something that the page does.
    Action {
        id: String,
        text: String,
        /// The letter that is pressed with ⌘ or Ctrl.
        key: Option<String>,
    },
    /// Something that the system does.
    Native {
        role: Role,
        text: String,
    },
    Separator,
    Menu(Described),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    About,
    Services,
    Hide,
    HideOthers,
    ShowAll,
    Quit,
    Undo,
    Redo,
    Cut,
    Copy,
    Paste,
    SelectAll,
    Minimize,
    Zoom,
    Fullscreen,
    CloseWindow,
}

type Made = tauri::Result<Box<dyn IsMenuItem<Wry>>>;

/// Shows these menus in place of those before.
pub(crate) fn show(app: &AppHandle, menus: &[Described]) -> tauri::Result<()> {
    let bar = Menu::new(app)?;
    for menu in menus {
        bar.append(&submenu(app, menu)?)?;
    }
    app.set_menu(bar)?;
    Ok(())
}

/// Passes on what is chosen.
pub(crate) fn pass_on(app: &AppHandle, event: &tauri::menu::MenuEvent) {
    if event.id() == QUIT {
        return app.exit(0);
    }
    // A page that is gone chooses nothing.
    let _ = app.emit(CHOSEN, event.id().as_ref());
}

fn submenu(app: &AppHandle, described: &Described) -> tauri::Result<Submenu<Wry>> {
    let menu = Submenu::new(app, &described.text, true)?;
    for item in &described.items {
        menu.append(made(app, item)?.as_ref())?;
    }
    Ok(menu)
}

fn made(app: &AppHandle, item: &Item) -> Made {
    Ok(match item {
        Item::Action { id, text, key } => {
            let key = key.as_deref().map(accelerator);
            Box::new(MenuItem::with_id(app, id.as_str(), literal(text), true, key)?)
        }
        Item::Native { role: Role::Quit, text } if !cfg!(target_os = "macos") => {
            Box::new(MenuItem::with_id(app, QUIT, text, true, Some(accelerator("q")))?)
        }
        Item::Native { role, text } => Box::new(native(app, *role, text)?),
        Item::Separator => Box::new(PredefinedMenuItem::separator(app)?),
        Item::Menu(described) => Box::new(submenu(app, described)?),
    })
}

/// An ampersand would mark the letter behind it as the item's key.
fn literal(text: &str) -> String {
    text.replace('&', "&&")
}

fn accelerator(key: &str) -> String {
    format!("CmdOrCtrl+{}", key.to_uppercase())
}

fn native(app: &AppHandle, role: Role, text: &str) -> tauri::Result<PredefinedMenuItem<Wry>> {
    let text = Some(text);
    match role {
        Role::About => {
            let package = app.package_info();
            let (name, version) = (
                Some(app.config().product_name.clone().unwrap_or_default()),
                Some(package.version.to_string()),
            );
            PredefinedMenuItem::about(
                app,
                text,
                Some(AboutMetadata { name, version, ..AboutMetadata::default() }),
            )
        }
        Role::Services => PredefinedMenuItem::services(app, text),
        Role::Hide => PredefinedMenuItem::hide(app, text),
        Role::HideOthers => PredefinedMenuItem::hide_others(app, text),
        Role::ShowAll => PredefinedMenuItem::show_all(app, text),
        Role::Quit => PredefinedMenuItem::quit(app, text),
        Role::Undo => PredefinedMenuItem::undo(app, text),
        Role::Redo => PredefinedMenuItem::redo(app, text),
        Role::Cut => PredefinedMenuItem::cut(app, text),
        Role::Copy => PredefinedMenuItem::copy(app, text),
        Role::Paste => PredefinedMenuItem::paste(app, text),
        Role::SelectAll => PredefinedMenuItem::select_all(app, text),
        Role::Minimize => PredefinedMenuItem::minimize(app, text),
        Role::Zoom => PredefinedMenuItem::maximize(app, text),
        Role::Fullscreen => PredefinedMenuItem::fullscreen(app, text),
        Role::CloseWindow => PredefinedMenuItem::close_window(app, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's tests keep what it says in these files: both sides must read the same.
    #[test]
    fn the_menus_that_the_page_describes_are_understood() {
        for text in [
            include_str!("../../ui/src/lib/menus.linux.json"),
            include_str!("../../ui/src/lib/menus.mac.json"),
        ] {
            let menus: Vec<Described> = serde_json::from_str(text).unwrap();
            assert!(menus.len() >= 4);
            let keys = menus.iter().flat_map(|menu| &menu.items).filter_map(|item| match item {
                Item::Action { key, .. } => key.as_deref(),
                _ => None,
            });
            let keys: Vec<&str> = keys.collect();
            assert!(keys.len() > 8, "{keys:?}");
            assert!(keys.iter().all(|key| key.chars().count() == 1), "{keys:?}");
        }
    }
}
