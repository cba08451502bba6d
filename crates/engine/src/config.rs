//! Reading `config.json` files: every key that matters must be there, since the references' defaults differ.

use crate::Error;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};

const CAP: u64 = 16 << 20;

/// Larger dimensions are no model's; products of three of them fit a machine word.
const LARGEST: usize = 1 << 20;

/// One configuration file, or the part of it under a key.
pub(crate) struct Config {
    path: PathBuf,
    prefix: String,
    pub value: Value,
}

impl Config {
    pub fn read(path: PathBuf) -> Result<Self, Error> {
        let bytes = files::read_regular(&path, CAP)?;
        let value = serde_json::from_slice(&bytes).map_err(|e| Error::Config {
            path: path.clone(),
            key: "/".into(),
            reason: format!("is no JSON: {e}"),
        })?;
        Ok(Self::new(path, value))
    }

    /// What `path` says, in the form of a configuration.
    pub fn new(path: PathBuf, value: Value) -> Self {
        Self { path, prefix: String::new(), value }
    }

    /// This configuration with `values` in place of its own.
    pub fn with(mut self, values: Value) -> Self {
        if let (Some(own), Value::Object(values)) = (self.value.as_object_mut(), values) {
            own.extend(values);
        }
        self
    }

    /// This configuration, with `values` where it has none of its own.
    pub fn with_defaults(self, values: Value) -> Self {
        let own = self.value.clone();
        Self { value: values, ..self }.with(own)
    }

    /// The part under `key`, if it is there.
    pub fn section(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| value.is_object())?.clone();
        Some(Self { path: self.path.clone(), prefix: format!("{}{key}.", self.prefix), value })
    }

    /// The part under `key`.
    pub fn require_section(&self, key: &str) -> Result<Self, Error> {
        self.section(key).ok_or_else(|| self.error(key, "is missing; it must be an object"))
    }

    /// The value of `key`, which must be there.
    pub fn require<T: DeserializeOwned>(&self, key: &str) -> Result<T, Error> {
        self.optional(key)?
            .ok_or_else(|| self.error(key, "is missing; the implementations' defaults differ, so state it"))
    }

    /// The value of `key`; absent and null are none.
    pub fn optional<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::deserialize(value).map(Some).map_err(|e| self.error(key, e.to_string())),
        }
    }

    /// A positive count under `key`.
    pub fn count(&self, key: &str) -> Result<usize, Error> {
        match self.size(key)? {
            0 => Err(self.error(key, "is 0; it must be positive")),
            count => Ok(count),
        }
    }

    /// A count under `key` that may be 0.
    pub fn size(&self, key: &str) -> Result<usize, Error> {
        match self.require(key)? {
            size if size > LARGEST => Err(self.error(key, format!("is {size}; no model is so large"))),
            size => Ok(size),
        }
    }

    pub fn error(&self, key: &str, reason: impl Into<String>) -> Error {
        Error::Config { path: self.path.clone(), key: format!("{}{key}", self.prefix), reason: reason.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
