//! Weight files: safetensors (one file or shards), GGUF, and PyTorch archives, read without executing anything.

use crate::Error;
use crate::backend::{Backend, Numbers, Stored};
use crate::gguf::Gguf;
use crate::quantisation::{Quantisation, Scheme};
use bytes::Bytes;
use candle_core::quantized::GgmlDType;
use files::{Header, ShardIndex};
use safetensors::Dtype;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where each tensor of a model lies. Tensors are mapped one by one, so that a model never is in memory twice.
pub(crate) struct Weights<'a, B: Backend> {
    backend: &'a B,
    quantisation: Option<Quantisation>,
    entries: BTreeMap<String, Entry>,
    /// Files that make up the model.
    pub files: Vec<PathBuf>,
}

/// One stored array.
struct Entry {
    shape: Vec<usize>,
    format: Format,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Plain(Dtype),
    Blocks(GgmlDType),
}

enum Place {
    File { path: PathBuf, range: Range<u64> },
    Memory(Bytes),
}

impl<'a, B: Backend> Weights<'a, B> {
    /// Opens `stem.safetensors` of `folder`, or its shards, or `stem.pt`, in this order.
    pub fn open(backend: &'a B, folder: &Path, stem: &str) -> Result<Self, Error> {
        let single = folder.join(format!("{stem}.safetensors"));
        let index = folder.join(format!("{stem}.safetensors.index.json"));
        let archive = folder.join(format!("{stem}.pt"));
        let mut weights = Self { backend, quantisation: None, entries: BTreeMap::new(), files: Vec::new() };
        if !single.exists() && index.exists() {
            let index = ShardIndex::read(&index)?;
            index.shards().into_iter().try_for_each(|name| weights.add_safetensors(folder.join(name)))?;
            weights.files.insert(0, index.path);
        } else if !single.exists() && archive.exists() {
            weights.add_archive(archive)?;
        } else {
            weights.add_safetensors(single)?;
        }
        Ok(weights)
    }

    /// The weights with what `config.json` says of their quantisation.
    pub fn quantised(self, quantisation: Option<Quantisation>) -> Self {
        Self { quantisation, ..self }
    }

    /// The tensors of a GGUF file, under the names of a Hugging Face checkpoint.
    pub fn of_gguf(backend: &'a B, gguf: &Gguf) -> Result<Self, Error> {
        let entry = |extent: crate::gguf::Extent| {
            let format = match extent.format {
                GgmlDType::F32 => Format::Plain(Dtype::F32),
                GgmlDType::F16 => Format::Plain(Dtype::F16),
                GgmlDType::BF16 => Format::Plain(Dtype::BF16),
                quantised => Format::Blocks(quantised),
            };
            let place = Place::File { path: gguf.path().to_owned(), range: extent.range };
            (extent.name, Entry { shape: extent.shape, format, place })
        };
        let entries = gguf.tensors()?.into_iter().map(entry).collect();
        Ok(Self { backend, quantisation: None, entries, files: vec![gguf.path().to_owned()] })
    }

    fn add_safetensors(&mut self, path: PathBuf) -> Result<(), Error> {
        let Header { start, tensors, .. } = files::safetensors_header(&path)?;
        for (name, info) in tensors.tensors() {
            let (from, to) = info.data_offsets;
            let place = Place::File { path: path.clone(), range: start + from as u64..start + to as u64 };
            self.entries
                .insert(name, Entry { shape: info.shape.clone(), format: Format::Plain(info.dtype), place });
        }
        self.files.push(path);
        Ok(())
    }

    fn add_archive(&mut self, path: PathBuf) -> Result<(), Error> {
        files::weight_bytes(&path)?;
        let damaged = |e: candle_core::Error| {
            broken(
                &path,
                format!("cannot be read as a PyTorch archive: {e}"),
                "download it again, or store it as safetensors",
            )
        };
        if !B::NUMBERS {
            let infos = candle_core::pickle::read_pth_tensor_info(&path, false, None).map_err(damaged)?;
            let entry = |info: candle_core::pickle::TensorInfo| {
                let (shape, place) = (info.layout.dims().to_vec(), Place::Memory(Bytes::new()));
                (info.name, Entry { shape, format: Format::Plain(Dtype::F32), place })
            };
            self.entries.extend(infos.into_iter().map(entry));
            self.files.push(path);
            return Ok(());
        }
        for (name, tensor) in candle_core::pickle::read_all(&path).map_err(damaged)? {
            let shape = tensor.dims().to_vec();
            let flat = tensor.to_dtype(candle_core::DType::F32).and_then(|t| t.flatten_all());
            let values: Vec<f32> = flat.and_then(|t| t.to_vec1()).map_err(damaged)?;
            let place =
                Place::Memory(values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<_>>().into());
            self.entries.insert(name, Entry { shape, format: Format::Plain(Dtype::F32), place });
        }
        self.files.push(path);
        Ok(())
    }

    /// The tensor library that arrays are put on.
    pub fn backend(&self) -> &'a B {
        self.backend
    }

    /// Whether there is a tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The array `name`, whose dimensions must be `shape`.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<B::Tensor, Error> {
        let Numbers { dtype, bytes } = self.numbers(name, shape)?;
        self.backend.tensor(dtype, shape, &bytes).map_err(|e| self.unusable(name, &e))
    }

    /// The array `name` as numbers.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        self.backend.to_f32(&self.tensor(name, shape)?)
    }

    /// The matrix `name`, whose dimensions must be `shape`.
    pub fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<B::Weight, Error> {
        self.backend.weight(self.stored(name, &shape)?).map_err(|e| self.unusable(name, &e))
    }

    /// The weight `name` as it is stored.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored, Error> {
        if let Some(Entry { format: Format::Blocks(format), .. }) = self.entries.get(name) {
            let (shape, format) = (shape.to_vec(), *format);
            return Ok(Stored::Blocks { bytes: self.read(self.entry(name, &shape)?)?, shape, format });
        }
        let path = name.strip_suffix(".weight").unwrap_or(name);
        match self.scheme(path)? {
            Some(scheme) => self.affine(path, name, shape, scheme),
            None => Ok(Stored::Dense { shape: shape.to_vec(), values: self.numbers(name, shape)? }),
        }
    }

    /// How the module `path` is quantised: as its own entry says, else as all others if it has scales.
    fn scheme(&self, path: &str) -> Result<Option<Scheme>, Error> {
        let scaled = self.has(&format!("{path}.scales"));
        match &self.quantisation {
            Some(quantisation) if scaled || quantisation.names(path) => quantisation.of(path),
            None if scaled => Err(broken(
                &self.files[0],
                format!("has {path}.scales, but config.json has no quantization"),
                "use the config.json that belongs to these weights",
            )),
            _ => Ok(None),
        }
    }

    /// Codes, scales and biases of a quantised module.
    fn affine(&self, path: &str, name: &str, shape: &[usize], scheme: Scheme) -> Result<Stored, Error> {
        let Scheme { bits, group } = scheme;
        let (inner, outer) = shape.split_last().map_or((0, shape), |(inner, outer)| (*inner, outer));
        if !inner.is_multiple_of(group) || !(inner * bits).is_multiple_of(32) {
            return Err(Error::Mismatch {
                left: format!("{path} is quantised in groups of {group} codes of {bits} bits"),
                right: format!("its rows have {inner} elements, which do not divide so"),
            });
        }
        let part = |name: &str, len: usize| self.numbers(name, &[outer, &[len]].concat());
        let codes = part(name, inner * bits / 32)?;
        if codes.dtype != Dtype::U32 {
            let error = Error::Tensor(format!("codes of type {:?}, where U32 is meant", codes.dtype));
            return Err(self.unusable(name, &error));
        }
        let scales = part(&format!("{path}.scales"), inner / group)?;
        let biases = part(&format!("{path}.biases"), inner / group)?;
        Ok(Stored::Affine { shape: shape.to_vec(), bits, group, codes: codes.bytes, scales, biases })
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Numbers, Error> {
        let entry = self.entry(name, shape)?;
        match entry.format {
            Format::Plain(dtype) => Ok(Numbers { dtype, bytes: self.read(entry)? }),
            Format::Blocks(format) => {
                Err(self.unusable(name, &Error::Tensor(format!("{format:?} where plain numbers are needed"))))
            }
        }
    }

    /// The tensor `name`, whose dimensions must be `shape`.
    fn entry(&self, name: &str, shape: &[usize]) -> Result<&Entry, Error> {
        let entry = self.entries.get(name).ok_or_else(|| {
            broken(
                &self.files[0],
                format!("has no tensor {name}"),
                "use weights that belong to this config.json",
            )
        })?;
        if entry.shape == shape {
            return Ok(entry);
        }
        Err(Error::Mismatch {
            left: format!("{name} in {} is {:?}", self.file_of(name).display(), entry.shape),
            right: format!("the configuration asks for {shape:?}"),
        })
    }

    fn read(&self, entry: &Entry) -> Result<Bytes, Error> {
        match &entry.place {
            Place::File { .. } if !B::NUMBERS => Ok(Bytes::new()),
            Place::File { path, range } => Ok(files::map_weights(path, range.clone())?),
            Place::Memory(bytes) => Ok(bytes.clone()),
        }
    }

    fn file_of(&self, name: &str) -> &Path {
        match self.entries.get(name).map(|entry| &entry.place) {
            Some(Place::File { path, .. }) => path,
            _ => &self.files[0],
        }
    }

    fn unusable(&self, name: &str, error: &Error) -> Error {
        const HINT: &str = "use weights stored as F32, F16 or BF16, or quantised as the documentation says";
        broken(self.file_of(name), format!("{name}: {error}"), HINT)
    }

    /// Number types of the stored tensors, joined by `+`.
    pub fn dtypes(&self) -> String {
        let name = |entry: &Entry| match entry.format {
            // The only integers of a checkpoint are the codes of quantised weights.
            Format::Plain(Dtype::U32) => "affine".into(),
            Format::Plain(dtype) => format!("{dtype:?}").to_lowercase(),
            Format::Blocks(format) => format!("{format:?}").to_lowercase(),
        };
        self.entries.values().map(name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("+")
    }
}

fn broken(path: &Path, reason: String, hint: &'static str) -> Error {
    Error::Weights { path: path.to_owned(), reason, hint }
}
