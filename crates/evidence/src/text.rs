//! What the program says, in every language that a reader may ask for.
//!
//! A sentence is written once, where it is made, in both languages side by side ([`text!`](macro@crate::text)): one that lacks a
//! language, or a number in one of them, does not compile.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Display};
use std::str::FromStr;
use ts_rs::TS;

/// A language of readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English: what programs read, and what is said to whoever does not ask.
    #[default]
    En,
    /// Simplified Chinese.
    Zh,
}

impl Language {
    /// Both.
    pub const ALL: [Self; 2] = [Self::En, Self::Zh];

    /// The tag that a page states as the language of its words.
    pub fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Zh => "zh-Hans",
        }
    }

    /// The language that a reader likes best of an `Accept-Language` header's list; English when it names none of ours.
    pub fn accepted(list: &str) -> Self {
        let wish = |entry: &str| {
            let mut parts = entry.split(';').map(str::trim);
            let language = parts.next()?.parse().ok()?;
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f64>);
            Some((weight.ok()?, language))
        };
        // Of equal weights the first counts, and `max_by` gives the last: hence the reversal.
        let wishes: Vec<(f64, Self)> = list.split(',').filter_map(wish).collect();
        let best = wishes.into_iter().rev().max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, language)| language).unwrap_or_default()
    }
}

/// No language of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the languages are en and zh")]
pub struct UnknownLanguage;

impl FromStr for Language {
    type Err = UnknownLanguage;

    /// Reads a language, whatever region and script stand behind it (`zh-CN`).
    fn from_str(tag: &str) -> Result<Self, UnknownLanguage> {
        match tag.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "en" => Ok(Self::En),
            "zh" => Ok(Self::Zh),
            _ => Err(UnknownLanguage),
        }
    }
}

thread_local! {
    static SPOKEN: Cell<Language> = const { Cell::new(Language::En) };
}

/// Texts that are serialised in `work` are in this language; everywhere else they are English, so what programs read never
/// depends on a reader.
pub fn spoken<T>(language: Language, work: impl FnOnce() -> T) -> T {
    /// Puts the former language back, also when `work` panics.
    struct Former(Language);
    impl Drop for Former {
        fn drop(&mut self) {
            SPOKEN.set(self.0);
        }
    }
    let _former = Former(SPOKEN.replace(language));
    work()
}

/// A sentence, or a part of one, in every language.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text {
    en: Cow<'static, str>,
    zh: Cow<'static, str>,
}

impl Text {
    /// What [`text!`](macro@crate::text) makes.
    #[doc(hidden)]
    pub fn written(en: fmt::Arguments, zh: fmt::Arguments) -> Self {
        let words =
            |words: fmt::Arguments| words.as_str().map_or_else(|| words.to_string().into(), Cow::Borrowed);
        Self { en: words(en), zh: words(zh) }
    }

    /// A sentence without values, for tables that are written down as constants.
    pub const fn fixed(en: &'static str, zh: &'static str) -> Self {
        Self { en: Cow::Borrowed(en), zh: Cow::Borrowed(zh) }
    }

    /// What reads the same in every language: a figure, a name, words of a file.
    pub fn same(words: impl Display) -> Self {
        let words: Cow<'static, str> = words.to_string().into();
        Self { en: words.clone(), zh: words }
    }

    /// A text that is put together anew in each language.
    pub fn each(make: impl Fn(Language) -> String) -> Self {
        Self { en: make(Language::En).into(), zh: make(Language::Zh).into() }
    }

    /// Texts one after another, `between` in between.
    pub fn join(parts: &[Self], between: &Self) -> Self {
        let joined = |language| {
            let parts: Vec<&str> = parts.iter().map(|part| part.said(language)).collect();
            parts.join(between.said(language))
        };
        Self::each(joined)
    }

    /// Says more.
    pub fn push(&mut self, more: &Self) {
        self.en.to_mut().push_str(&more.en);
        self.zh.to_mut().push_str(&more.zh);
    }

    /// The words in English.
    pub fn en(&self) -> &str {
        &self.en
    }

    /// The words in a language.
    pub fn said(&self, language: Language) -> &str {
        match language {
            Language::En => &self.en,
            Language::Zh => &self.zh,
        }
    }
}

/// A [`Text`] from a format string in English, one in Simplified Chinese, and the values of both.
///
/// Values that are texts themselves are said in the language of the sentence: `text!(language => "…", "…", word.said(language))`.
#[macro_export]
macro_rules! text {
    ($language:ident => $en:literal, $zh:literal $(, $($values:tt)*)?) => {
        $crate::Text::each(|$language| match $language {
            $crate::Language::En => ::std::format!($en $(, $($values)*)?),
            $crate::Language::Zh => ::std::format!($zh $(, $($values)*)?),
        })
    };
    ($en:literal, $zh:literal $(, $($values:tt)*)?) => {
        $crate::Text::written(
            ::std::format_args!($en $(, $($values)*)?),
            ::std::format_args!($zh $(, $($values)*)?),
        )
    };
}

/// The words in one language, as a `String`: what [`text!`](macro@crate::text) is for a page that is made for one reader.
#[macro_export]
macro_rules! said {
    ($language:expr, $en:literal, $zh:literal $(, $($values:tt)*)?) => {
        match $language {
            $crate::Language::En => ::std::format!($en $(, $($values)*)?),
            $crate::Language::Zh => ::std::format!($zh $(, $($values)*)?),
        }
    };
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.said(SPOKEN.get()))
    }
}

/// What comes back from a page was said in its language already.
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::same)
    }
}

impl JsonSchema for Text {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl TS for Text {
    type WithoutGenerics = Self;
    type OptionInnerType = Self;

    fn name(config: &ts_rs::Config) -> String {
        String::name(config)
    }

    fn inline(config: &ts_rs::Config) -> String {
        String::inline(config)
    }
}
