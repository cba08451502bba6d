//! Text of strangers, made fit to be shown, and words that charts and tables share.

use evidence::{Language, Platform, said};

/// A platform in words.
pub(crate) fn platform(platform: Platform, language: Language) -> String {
    match platform {
        Platform::Unknown => said!(language, "unknown", "未知"),
        known => known.label().to_owned(),
    }
}

/// Control characters, and characters that turn or hide the text around them, become one visible mark; line breaks
/// become spaces. XML 1.0 forbids most of the first kind, the second lets a file name pose as another.
pub fn tame(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                '\u{fffd}'
            }
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Width of a text in a proportional face, in pixels; on the safe side.
pub(crate) fn width(text: &str, font_px: f64) -> f64 {
    text.chars().map(|c| advance(c) * font_px).sum()
}

fn advance(c: char) -> f64 {
    match c {
        ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | 'i' | 'j' | 'l' | '·' => 0.36,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | 'θ' => 0.92,
        'A'..='Z' => 0.7,
        c if c.is_ascii() || ('\u{a0}'..'\u{300}').contains(&c) => 0.58,
        _ => 1.05,
    }
}

/// The text, cut with an ellipsis so that it is no wider than `limit_px`.
pub(crate) fn fit(text: &str, font_px: f64, limit_px: f64) -> String {
    let text = tame(text);
    if width(&text, font_px) <= limit_px {
        return text;
    }
    let room = limit_px - width("…", font_px);
    let mut used = 0.0;
    let kept: String = text
        .chars()
        .take_while(|c| {
            used += advance(*c) * font_px;
            used <= room
        })
        .collect();
    format!("{}…", kept.trim_end())
}

/// The four characters of XML's text and attributes, escaped.
pub(crate) fn xml(text: &str) -> String {
    tame(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
