//! The engine's protocol on standard input and output, and the worker of a queue.

use crate::arguments::WorkerArgs;
use crate::commands::{Outcome, cancel_on_signal};
use api::{EngineProgram, ErrorCode, ErrorReport, QueueWorker, WorkerEvent, durable};
use engine::Durable;
use protocol::Order;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Runs that outlive a connection, in the journal of this machine.
struct Here {
    data: PathBuf,
    program: EngineProgram,
}

impl Durable for Here {
    fn packs(&self) -> Vec<PathBuf> {
        api::own_packs(&self.data)
    }

    fn data(&self) -> &Path {
        &self.data
    }

    fn start(&self, order: &Order) -> Result<(), ErrorReport> {
        Ok(durable::start(&self.data, &self.program, order)?)
    }

    fn stop(&self, run: &str) -> Result<(), ErrorReport> {
        Ok(durable::stop(&self.data, run)?)
    }

    fn follow(
        &self,
        run: &str,
        after: u64,
        tell: &mut dyn FnMut(Option<(u64, String)>) -> bool,
    ) -> Result<bool, ErrorReport> {
        Ok(durable::follow(&self.data, run, after, tell)?)
    }
}

/// Serves one connection, or carries the ordered run of that id through.
pub(crate) fn engine(run: Option<&str>) -> Outcome {
    let here = Here { data: api::data_folder()?, program: this_program()? };
    if let Some(run) = run {
        durable::carry_through(&here.data, &here.program, run)?;
        return Ok(ExitCode::SUCCESS);
    }
    let identity = engine::Identity {
        version: api::VERSION.to_owned(),
        commit: option_env!("KAKEYA_GATE_COMMIT").map(str::to_owned),
        dirty: option_env!("KAKEYA_GATE_DIRTY") == Some("true"),
    };
    engine::serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout(), identity, here).map_err(
        |e| ErrorReport::new(ErrorCode::Engine, e, "start the engine through the app or `kakeya-gate run`"),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// This very file: what is beside it may be another version.
fn this_program() -> Result<EngineProgram, ErrorReport> {
    let path = std::env::current_exe()
        .map_err(|e| ErrorReport::new(ErrorCode::EngineNotFound, e, "start the program by its path"))?;
    Ok(EngineProgram(path))
}

pub(crate) fn worker(args: &WorkerArgs) -> Outcome {
    let data = api::data_folder()?;
    let mut packs = args.packs.clone();
    packs.extend(api::own_packs(&data));
    let worker = QueueWorker {
        url: args.nats.clone(),
        program: api::program_beside()?,
        data,
        packs,
        idle: args.idle.map(Duration::from_secs),
        cancel: cancel_on_signal()?,
    };
    worker.work(|event| match event {
        WorkerEvent::Waiting(offers) => {
            for (name, digest, backend, device) in offers {
                eprintln!("takes trials of {name} (sha256:{digest}) with {backend:?} on {device:?}");
            }
        }
        WorkerEvent::Answered { id, run } => eprintln!("{run}: answered {}", id.get(..12).unwrap_or(&id)),
        WorkerEvent::Notice(line) => eprintln!("{line}"),
    })?;
    Ok(ExitCode::SUCCESS)
}
