//! Can the run that is meant decide anything?

use crate::check::{Finding, Found, Group};
use crate::{Place, PlannedRun, Row, fix, name, tokenizer, word};
use evidence::{File, Niah};
use protocol::{PromptFacts, RunSpec};
use std::path::Path;

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "spec-settings",
        group: Group::Specification,
        title: "Settings",
        why: "What cannot be run is better known before the engine starts.",
        look: settings,
    },
    Row {
        id: "spec-restoration",
        group: Group::Specification,
        title: "Restoration happens",
        why: "A run in which nothing is evicted, or nothing restored, compares the verifier with itself.",
        look: restoration,
    },
    Row {
        id: "spec-oracle",
        group: Group::Specification,
        title: "Oracle runs",
        why: "Recall is judged against the oracle on the same samples.",
        look: oracle,
    },
    Row {
        id: fix::SAMPLES,
        group: Group::Specification,
        title: "Samples can decide 5 pp",
        why: "With few samples even a run without a loss leaves the 5 pp claim open.",
        look: samples,
    },
    Row {
        id: "spec-tokens",
        group: Group::Specification,
        title: "Token budget holds a code",
        why: "An answer that is cut short counts as lost.",
        look: tokens,
    },
    Row {
        id: "spec-counterpart",
        group: Group::Specification,
        title: "Same settings as the counterpart",
        why: "Two runs are comparable only if they were asked the same.",
        look: counterpart,
    },
    Row {
        id: "spec-output",
        group: Group::Specification,
        title: "Evidence can be written",
        why: "Hours of work end in a file; its folder must take it.",
        look: output,
    },
    Row {
        id: "spec-revision",
        group: Group::Specification,
        title: "Revision recorded",
        why: "Evidence names the commit of the program; a changed checkout cannot be found again.",
        look: revision,
    },
];

/// Pairs that bound lost recall to 5 pp with one-sided confidence 95 % if none is lost: 1 − 0.05^(1/59) < 0.05.
pub const DECIDING_SAMPLES: usize = 59;
/// Tokens below which a chat model's few words before a code cost the code.
const ROOM: usize = 12;

fn settings(place: &Place<'_>) -> Found {
    let spec = &place.run()?.spec;
    spec.check().map_err(|e| Finding::fail(e.to_string(), "correct the setting"))?;
    let rungs: Vec<String> = spec.ladder.iter().map(|rung| rung.0.to_string()).collect();
    let (arms, samples, trials) = (spec.arms.len(), spec.n_samples, spec.trials());
    Ok(Finding::pass(format!(
        "{arms} arms × {samples} samples × rungs {} = {trials} trials",
        rungs.join(" and ")
    )))
}

fn restoration(place: &Place<'_>) -> Found {
    let (spec, manifest) = (&place.run()?.spec, &place.pack()?.manifest);
    if let Some(arm) = spec.arms.iter().find(|arm| arm.needs_projection() && manifest.f_theta.is_none()) {
        let measured = format!("{arm} needs f_θ, which pack.json does not name");
        return Err(Finding::fail(measured, "leave the arm out, or add drafter and f_θ to the pack"));
    }
    let Some(arm) = spec.system_under_test() else {
        return Err(Finding::warn("no restored arm", "add one: without it nothing is under test"));
    };
    let (prompts, _) = tokenizer::prompts(place)?;
    let evicted = |prompt: &PromptFacts| niah::evicted(prompt.tokens, spec.sink, spec.window).len();
    if let Some(prompt) = prompts.iter().find(|prompt| evicted(prompt) == 0) {
        let kept = spec.sink + spec.window;
        let measured = format!(
            "rung {}: sink and window ({kept} positions) hold the whole prompt ({} tokens)",
            prompt.rung.0, prompt.tokens
        );
        return Err(Finding::fail(measured, "choose a smaller window, or longer rungs"));
    }
    let counts: Vec<String> = prompts.iter().map(|prompt| evicted(prompt).to_string()).collect();
    Ok(Finding::pass(format!(
        "{arm}: {} positions evicted on the first prompt of each rung",
        counts.join(" and ")
    )))
}

fn oracle(place: &Place<'_>) -> Found {
    match place.run()?.spec.arms.contains(&protocol::Arm::Oracle) {
        true => Ok(Finding::pass("oracle among the arms")),
        false => Err(Finding::warn("the oracle is left out", "add it: no gate passes without")),
    }
}

fn samples(place: &Place<'_>) -> Found {
    let run = place.run()?;
    let n = run.spec.n_samples;
    let bound = 100.0 * (1.0 - 0.05_f64.powf(1.0 / n.max(1) as f64));
    let measured = format!("n = {n} a rung bounds lost recall to {bound:.2} pp at best");
    if n >= DECIDING_SAMPLES {
        return Ok(Finding::pass(measured));
    }
    let hint = format!("{DECIDING_SAMPLES} would bound it to 5 pp: {} more a rung", DECIDING_SAMPLES - n);
    let finding = Finding::warn(measured, hint);
    Err(if fix::preview(place.subject, fix::SAMPLES).is_ok() { finding.fixable() } else { finding })
}

fn tokens(place: &Place<'_>) -> Found {
    let budget = place.run()?.spec.max_new_tokens;
    let (prompts, _) = tokenizer::prompts(place)?;
    let longest = prompts.iter().map(|prompt| prompt.answer_tokens).max().unwrap_or(0);
    let measured = format!("{budget} tokens; the first codes take up to {longest}");
    if budget < longest {
        return Err(Finding::fail(measured, "raise the budget; the ladder's standard is 24"));
    }
    if budget < ROOM {
        return Err(Finding::warn(measured, "raise the budget: a few words before a code cost the code"));
    }
    Ok(Finding::pass(measured))
}

fn counterpart(place: &Place<'_>) -> Found {
    let run = place.run()?;
    let path = run.counterpart.as_deref().ok_or_else(|| Finding::skipped("no counterpart chosen"))?;
    let read = |path: &Path| evidence::read(&evidence::Place::from(path));
    let file = read(path).map_err(|e| Finding::fail(e.to_string(), "choose another evidence file"))?;
    let (named, variant) = (name(path), stated_variant(&file));
    let audit = evidence::audit(std::slice::from_ref(&file)).pop();
    let niah = audit.and_then(|audit| audit.niah);
    let niah =
        niah.ok_or_else(|| Finding::fail(format!("{named} is no needle evidence"), "choose another file"))?;
    let differs = differences(&run.spec, &niah, variant);
    if differs.is_empty() {
        return Ok(Finding::pass(format!("as in {named}")));
    }
    let hint = "take the counterpart's settings, or expect that the two are not comparable";
    Err(Finding::warn(format!("{named} has {}", differs.join(", ")), hint))
}

/// The prompt variant that a file states; of files that state none, what their prompts' lengths tell.
fn stated_variant(file: &File) -> Option<String> {
    let stated = file.value.pointer("/config/prompt_variant")?;
    stated.as_str().map(str::to_owned)
}

/// What the counterpart has where this run has something else. What its file does not say is not compared.
fn differences(spec: &RunSpec, theirs: &Niah, variant: Option<String>) -> Vec<String> {
    let lines = theirs.min_lines.zip(theirs.max_lines);
    let has_rung = |(low, high): (u64, u64)| {
        spec.ladder.iter().any(|rung| {
            let ours = rung.line_bounds();
            (u64::from(ours.0), u64::from(ours.1)) == (low, high)
        })
    };
    let variant = variant.unwrap_or_else(|| word(&theirs.prompt_variant()));
    let number = |name: &str, ours: u64, theirs: Option<u64>| {
        theirs.filter(|theirs| *theirs != ours).map(|theirs| format!("{name} {theirs}"))
    };
    let seed = theirs.seed.filter(|seed| *seed != spec.seed).map(|seed| format!("seed {seed}"));
    let rung = lines.filter(|lines| !has_rung(*lines)).map(|(low, high)| format!("{low} to {high} lines"));
    let prompt = (variant != word(&spec.prompt)).then(|| format!("prompt {variant}"));
    let numbers = [
        number("sink", spec.sink as u64, theirs.sink),
        number("window", spec.window as u64, theirs.window),
        number("budget", spec.max_new_tokens as u64, theirs.max_new_tokens),
        number("n", spec.n_samples as u64, Some(theirs.n)),
    ];
    seed.into_iter().chain(rung).chain(prompt).chain(numbers.into_iter().flatten()).collect()
}

fn output(place: &Place<'_>) -> Found {
    let PlannedRun { out, .. } = place.run()?;
    let existing =
        out.ancestors().find(|folder| folder.symlink_metadata().is_ok() && !folder.as_os_str().is_empty());
    let folder = existing.unwrap_or(Path::new("."));
    let refused = |reason: String| {
        Finding::fail(
            format!("{}: {reason}", folder.display()),
            "choose another folder, or change its permissions",
        )
    };
    let meta = folder.metadata().map_err(|e| refused(e.to_string()))?;
    if !meta.is_dir() {
        return Err(refused("is no folder".into()));
    }
    if meta.permissions().readonly() {
        return Err(refused("is read-only".into()));
    }
    // Asked of the system itself: permission bits do not tell of read-only file systems. The file vanishes at once.
    tempfile::tempfile_in(folder).map_err(|e| refused(e.to_string()))?;
    Ok(Finding::pass(out.display().to_string()))
}

fn revision(place: &Place<'_>) -> Found {
    let hello = place.hello()?;
    let hint = "build the program from a clean checkout before evidence that counts";
    let commit = hello.commit.as_deref().map(|commit| commit.get(..12).unwrap_or(commit));
    match commit {
        None => Err(Finding::warn(format!("version {}, no commit known", hello.version), hint)),
        Some(commit) if hello.dirty => {
            Err(Finding::warn(format!("commit {commit}, with uncommitted changes"), hint))
        }
        Some(commit) => Ok(Finding::pass(format!("commit {commit}, clean"))),
    }
}
