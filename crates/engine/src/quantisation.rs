//! Quantised checkpoints of MLX: which weights are stored as codes, and how.

use crate::Error;
use crate::config::Config;
use serde_json::Value;

/// The `quantization` of a `config.json`: one scheme for all, and entries for single weights.
pub(crate) struct Quantisation {
    config: Config,
    all: Scheme,
}

/// How one weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    /// Bits of a code; divides 8.
    pub bits: usize,
    /// Elements of a row that share a scale and a bias; a multiple of 8.
    pub group: usize,
}

impl Quantisation {
    /// What `config.json` says of it, if anything. Other quantisations than MLX's affine one are errors.
    pub fn read(outer: &Config) -> Result<Option<Self>, Error> {
        let Some(config) = ["quantization", "quantization_config"].iter().find_map(|key| outer.section(key))
        else {
            return Ok(None);
        };
        if let Some(method) = config.optional::<Value>("quant_method")? {
            let reason = format!("{method} is not supported; use MLX's affine quantisation or plain weights");
            return Err(config.error("quant_method", reason));
        }
        let all = scheme(&config)?;
        Ok(Some(Self { config, all }))
    }

    /// Whether the module `path` has an entry of its own.
    pub fn names(&self, path: &str) -> bool {
        self.config.value.get(path).is_some()
    }

    /// The scheme of the module `path`; none if its entry says that it is not quantised.
    pub fn of(&self, path: &str) -> Result<Option<Scheme>, Error> {
        match self.config.value.get(path) {
            Some(Value::Bool(false)) => Ok(None),
            Some(Value::Object(_)) => scheme(&self.config.require_section(path)?).map(Some),
            None | Some(Value::Bool(true)) => Ok(Some(self.all)),
            Some(_) => {
                Err(self.config.error(path, "must be an object with group_size and bits, true or false"))
            }
        }
    }
}

fn scheme(config: &Config) -> Result<Scheme, Error> {
    let mode: Option<String> = config.optional("mode")?;
    if let Some(mode) = mode.filter(|mode| mode != "affine") {
        return Err(config.error("mode", format!("{mode:?} is not supported; this program reads \"affine\"")));
    }
    let (bits, group) = (config.count("bits")?, config.count("group_size")?);
    if !matches!(bits, 2 | 4 | 8) {
        return Err(config.error("bits", format!("is {bits}; this program reads 2, 4 and 8")));
    }
    if !group.is_multiple_of(8) {
        return Err(config.error("group_size", format!("is {group}; it must be a multiple of 8")));
    }
    Ok(Scheme { bits, group })
}
