//! Looking at a pack without loading it: the loaders themselves, over [`Headers`] instead of numbers.

use crate::Error;
use crate::backend::Backend;
use crate::demo;
use crate::drafter::Drafter;
use crate::f_theta::FTheta;
use crate::gemma::{self, Evicted, Gemma, Plan, Sequence};
use crate::headers::Headers;
use crate::tokenizer::Tokenizer;
use niah::Rung;
use protocol::{
    DrafterFacts, ErrorReport, FThetaFacts, Forecast, Inspection, Look, Pack, PromptFacts, RunSpec,
    TensorFacts, TokenizerFacts,
};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread::{self, Scope};
use std::time::Instant;

/// Bytes of one number of the arithmetic (f32).
const COMPUTE_BYTES: usize = 4;

/// Looks at the pack of `spec` and at the device that `open` opens. Fails where the pack's manifest cannot be used.
pub(crate) fn inspect<B: Backend + Clone>(
    spec: &RunSpec,
    open: impl FnOnce() -> Result<B, Error>,
) -> Result<Inspection, Error> {
    let pack = Pack::open(&spec.pack)?;
    pack.require_parts()?;
    let device = Seen::at(open);
    let memory = device.value().and_then(Backend::device_memory);
    let (self_test, parts) = thread::scope(|scope| {
        let backend = device.value().cloned();
        let test = scope.spawn(|| backend.map(|backend| Seen::at(|| demo::self_test(backend))));
        let parts = Parts::at(&pack, scope);
        (test.join().unwrap_or_else(|panic| resume_unwind(panic)), parts)
    });
    let prompts = parts.tokenizer.value().map(|tokenizer| Seen::at(|| prompts(tokenizer, spec)));
    let longest = prompts.as_ref().and_then(Seen::value).and_then(|prompts| longest(prompts));
    let special = |tokenizer: &Tokenizer| Seen::at(|| tokenizer.special_tokens(&pack.verifier()));
    Ok(Inspection {
        device: device.told(|_| memory),
        self_test: self_test.map(|test| test.told(|test| *test)),
        special_tokens: parts.tokenizer.value().map(special).map(|tokens| tokens.told(|count| *count)),
        prompts: prompts.map(|prompts| prompts.told(Vec::clone)),
        forecast: longest.and_then(|prompt| parts.forecast(spec, prompt)),
        dimensions: parts.dimensions().map(|dimensions| dimensions.told(|()| ())),
        verifier: Seen::at(|| gemma::outline(&pack.verifier())).told(Clone::clone),
        tensors: parts.verifier.told(tensor_facts),
        tokenizer: parts.tokenizer.told(tokenizer_facts),
        drafter: parts.drafter.map(|drafter| drafter.told(drafter_facts)),
        f_theta: parts.f_theta.map(|f_theta| f_theta.told(|f_theta| FThetaFacts { rank: f_theta.rank() })),
    })
}

/// Something that was looked at, and how long that took.
struct Seen<T> {
    seconds: f64,
    found: Result<T, ErrorReport>,
}

impl<T> Seen<T> {
    fn at(look: impl FnOnce() -> Result<T, Error>) -> Self {
        let start = Instant::now();
        let found = look().map_err(|error| error.report());
        Self { seconds: start.elapsed().as_secs_f64(), found }
    }

    fn value(&self) -> Option<&T> {
        self.found.as_ref().ok()
    }

    fn told<U>(&self, facts: impl FnOnce(&T) -> U) -> Look<U> {
        Look { seconds: self.seconds, found: self.found.as_ref().map(facts).map_err(Clone::clone) }
    }
}

/// The parts of a pack, by their headers.
struct Parts {
    verifier: Seen<Gemma<Headers>>,
    tokenizer: Seen<Tokenizer>,
    drafter: Option<Seen<Drafter<Headers>>>,
    f_theta: Option<Seen<FTheta<Headers>>>,
    /// Holds what drafter and f_θ hold.
    headers: Headers,
}

impl Parts {
    fn at<'scope>(pack: &'scope Pack, scope: &'scope Scope<'scope, '_>) -> Self {
        // Building a tokenizer takes longer than all else together.
        let tokenizer = scope.spawn(|| Seen::at(|| Tokenizer::load(&pack.verifier())));
        let headers = Headers::default();
        let drafter = |folder: &Path| Seen::at(|| Drafter::load(&headers, folder));
        let f_theta = |folder: &Path| Seen::at(|| FTheta::load(&headers, folder));
        Self {
            verifier: Seen::at(|| Gemma::load(Headers::default(), &pack.verifier())),
            drafter: pack.drafter().as_deref().map(drafter),
            f_theta: pack.f_theta().as_deref().map(f_theta),
            tokenizer: tokenizer.join().unwrap_or_else(|panic| resume_unwind(panic)),
            headers,
        }
    }

    fn dimensions(&self) -> Option<Seen<()>> {
        let f_theta = self.f_theta.as_ref()?.value()?;
        let (drafter, verifier) = (self.drafter.as_ref()?.value()?, self.verifier.value()?);
        Some(Seen::at(|| f_theta.check(drafter, verifier)))
    }

    /// What a run holds at the end of its longest answer. The rows that are injected lie beside the cache.
    fn forecast(&self, spec: &RunSpec, prompt: usize) -> Option<Forecast> {
        let verifier = self.verifier.value()?;
        let (layers, evicted) = (verifier.kv_layers(), niah::evicted(prompt, spec.sink, spec.window));
        let rows = evicted.len();
        let sequence = Sequence { prompt, evicted, native_window: verifier.window() };
        let cache = Plan::native(&layers, &sequence, |_| Evicted::Resident);
        let injects = spec.arms.iter().any(|arm| arm.mode().is_some());
        let injected = if injects { gemma::full_bytes(&layers, rows, COMPUTE_BYTES).total() } else { 0 };
        Some(Forecast {
            weights: verifier.backend().held() + self.headers.held(),
            kv: cache.bytes(spec.max_new_tokens, 0, COMPUTE_BYTES).total() + injected,
            positions: prompt + spec.max_new_tokens,
        })
    }
}

/// The first prompt of each rung: encoded, decoded, and found whole.
fn prompts(tokenizer: &Tokenizer, spec: &RunSpec) -> Result<Vec<PromptFacts>, Error> {
    spec.ladder.iter().map(|rung| prompt(tokenizer, spec, *rung)).collect()
}

fn prompt(tokenizer: &Tokenizer, spec: &RunSpec, rung: Rung) -> Result<PromptFacts, Error> {
    let wrong = |reason: String| Error::Trial(format!("rung {}: {reason}", rung.0));
    let dataset = rung.dataset(spec.seed, 1);
    let mut samples = dataset.samples().map_err(|e| wrong(e.to_string()))?;
    let sample = samples.next().ok_or_else(|| wrong("has no sample".into()))?;
    let text = spec.prompt.text(&sample);
    let ids = match spec.prompt.is_chat() {
        true => tokenizer.encode_chat(&text)?,
        false => tokenizer.encode_raw(&text)?,
    };
    if !tokenizer.decode(&ids)?.contains(text.trim()) {
        return Err(tokenizer.wrong(format!("the prompt of rung {} is another one after decoding", rung.0)));
    }
    let answer_tokens = tokenizer.encode_plain(&spec.prompt.completion(&sample))?.len();
    Ok(PromptFacts { rung, tokens: ids.len(), answer_tokens })
}

fn longest(prompts: &[PromptFacts]) -> Option<usize> {
    prompts.iter().map(|prompt| prompt.tokens).max()
}

fn tensor_facts(verifier: &Gemma<Headers>) -> TensorFacts {
    TensorFacts { types: verifier.weights_dtype().to_owned(), layers: verifier.geometry() }
}

fn tokenizer_facts(tokenizer: &Tokenizer) -> TokenizerFacts {
    TokenizerFacts {
        tokens: tokenizer.tokens(),
        template: tokenizer.template_place().map(str::to_owned),
        stop_tokens: tokenizer.stop_tokens.clone(),
    }
}

fn drafter_facts(drafter: &Drafter<Headers>) -> DrafterFacts {
    let Drafter { kv_heads, head_dim, .. } = drafter;
    DrafterFacts { layers: drafter.layers(), kv_heads: *kv_heads, head_dim: *head_dim }
}
