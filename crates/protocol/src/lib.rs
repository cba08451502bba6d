//! What the programs of Kakeya Gate say to each other: run specifications, model packs, engine messages.
//!
//! The engine is a process of its own. Its host writes [`Request`]s to its standard input and reads [`Event`]s from its
//! standard output, one JSON object a line. Either side ends the talk by closing its pipe.

mod arm;
mod error;
mod inspection;
mod message;
mod pack;
mod spec;

pub use arm::{Alpha, Arm, ArmError, Restore};
pub use error::{ErrorCode, ErrorReport};
pub use inspection::{
    DrafterFacts, FThetaFacts, Forecast, Inspection, Look, PromptFacts, SelfTest, TensorFacts,
    TokenizerFacts, VerifierFacts,
};
pub use message::{
    BackendInfo, DeviceMemory, Event, Fidelity, FoundPack, Hello, Host, KvBytes, LayerCounter, LayerError,
    LayerGeometry, LayerKind, LoadedPack, Order, Record, Request, RestorationCounters, Stage, StageTimings,
    Stop, Trial, TrialMemory, TrialResult, WeightFile, Worker,
};
pub use pack::{DrafterEmbeddingScale, Pack, PackError, PackManifest, ValueRule};
pub use spec::{Backend, Decode, Device, RunSpec, SpecError};

/// Version of the messages. A host and an engine of different versions refuse each other.
pub const VERSION: u32 = 4;
