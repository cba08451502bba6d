//! Can the run that is meant decide anything?

use crate::check::{Finding, Found, Group};
use crate::{Place, PlannedRun, Row, fix, name, tokenizer, word};
use evidence::{File, Niah, Text, text};
use protocol::{PromptFacts, RunSpec};
use std::path::Path;

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "spec-settings",
        group: Group::Specification,
        title: Text::fixed("Settings", "设置"),
        why: Text::fixed(
            "What cannot be run is better known before the engine starts.",
            "无法运行的设置，最好在引擎启动前就知道。",
        ),
        look: settings,
    },
    Row {
        id: "spec-restoration",
        group: Group::Specification,
        title: Text::fixed("Restoration happens", "恢复会发生"),
        why: Text::fixed(
            "A run in which nothing is evicted, or nothing restored, compares the verifier with itself.",
            "没有逐出或没有恢复的运行，是把验证模型与它自己比较。",
        ),
        look: restoration,
    },
    Row {
        id: "spec-oracle",
        group: Group::Specification,
        title: Text::fixed("Oracle runs", "oracle 会运行"),
        why: Text::fixed(
            "Recall is judged against the oracle on the same samples.",
            "召回率要与相同样本上的 oracle 对照判断。",
        ),
        look: oracle,
    },
    Row {
        id: fix::SAMPLES,
        group: Group::Specification,
        title: Text::fixed("Samples can decide 5 pp", "样本足以判定 5 个百分点"),
        why: Text::fixed(
            "With few samples even a run without a loss leaves the 5 pp claim open.",
            "样本太少时，即使一次都不丢，5 个百分点的声明仍无定论。",
        ),
        look: samples,
    },
    Row {
        id: "spec-tokens",
        group: Group::Specification,
        title: Text::fixed("Token budget holds a code", "词元上限容得下代号"),
        why: Text::fixed("An answer that is cut short counts as lost.", "被截断的回答算作丢失。"),
        look: tokens,
    },
    Row {
        id: "spec-counterpart",
        group: Group::Specification,
        title: Text::fixed("Same settings as the counterpart", "与对照文件设置相同"),
        why: Text::fixed(
            "Two runs are comparable only if they were asked the same.",
            "只有问题相同，两次运行才可比较。",
        ),
        look: counterpart,
    },
    Row {
        id: "spec-output",
        group: Group::Specification,
        title: Text::fixed("Evidence can be written", "证据可写入"),
        why: Text::fixed(
            "Hours of work end in a file; its folder must take it.",
            "数小时的工作最终写成一个文件；其文件夹必须能写入。",
        ),
        look: output,
    },
    Row {
        id: "spec-revision",
        group: Group::Specification,
        title: Text::fixed("Revision recorded", "版本已记录"),
        why: Text::fixed(
            "Evidence names the commit of the program; a changed checkout cannot be found again.",
            "证据要注明程序的提交；改动过的检出无法再找回。",
        ),
        look: revision,
    },
];

/// Pairs that bound lost recall to 5 pp with one-sided confidence 95 % if none is lost: 1 − 0.05^(1/59) < 0.05.
pub const DECIDING_SAMPLES: usize = 59;
/// Tokens below which a chat model's few words before a code cost the code.
const ROOM: usize = 12;

fn settings(place: &Place<'_>) -> Found {
    let spec = &place.run()?.spec;
    spec.check().map_err(|e| Finding::fail(Text::same(e), text!("correct the setting", "修正该设置")))?;
    let rungs: Vec<String> = spec.ladder.iter().map(|rung| rung.0.to_string()).collect();
    let (arms, samples, trials) = (spec.arms.len(), spec.n_samples, spec.trials());
    Ok(Finding::pass(text!(
        "{arms} arms × {samples} samples × rungs {} = {trials} trials",
        "{arms} 个实验臂 × {samples} 个样本 × 梯级 {} = {trials} 次试验",
        rungs.join(" and ")
    )))
}

fn restoration(place: &Place<'_>) -> Found {
    let (spec, manifest) = (&place.run()?.spec, &place.pack()?.manifest);
    if let Some(arm) = spec.arms.iter().find(|arm| arm.needs_projection() && manifest.f_theta.is_none()) {
        let measured =
            text!("{arm} needs f_θ, which pack.json does not name", "{arm} 需要 f_θ，而 pack.json 没有指明");
        return Err(Finding::fail(
            measured,
            text!(
                "leave the arm out, or add drafter and f_θ to the pack",
                "去掉该实验臂，或在模型包中加入草稿模型和 f_θ"
            ),
        ));
    }
    let Some(arm) = spec.system_under_test() else {
        return Err(Finding::warn(
            text!("no restored arm", "没有恢复实验臂"),
            text!("add one: without it nothing is under test", "加入一个：没有它就没有受测对象"),
        ));
    };
    let (prompts, _) = tokenizer::prompts(place)?;
    let evicted = |prompt: &PromptFacts| niah::evicted(prompt.tokens, spec.sink, spec.window).len();
    if let Some(prompt) = prompts.iter().find(|prompt| evicted(prompt) == 0) {
        let kept = spec.sink + spec.window;
        let measured = text!(
            "rung {}: sink and window ({kept} positions) hold the whole prompt ({} tokens)",
            "梯级 {}：sink 和窗口（{kept} 个位置）放得下整个提示词（{} 个词元）",
            prompt.rung.0,
            prompt.tokens
        );
        return Err(Finding::fail(
            measured,
            text!("choose a smaller window, or longer rungs", "选择更小的窗口，或更长的梯级"),
        ));
    }
    let counts: Vec<String> = prompts.iter().map(|prompt| evicted(prompt).to_string()).collect();
    Ok(Finding::pass(text!(
        "{arm}: {} positions evicted on the first prompt of each rung",
        "{arm}：每个梯级的第一个提示词中逐出 {} 个位置",
        counts.join(" and ")
    )))
}

fn oracle(place: &Place<'_>) -> Found {
    match place.run()?.spec.arms.contains(&protocol::Arm::Oracle) {
        true => Ok(Finding::pass(text!("oracle among the arms", "实验臂中有 oracle"))),
        false => Err(Finding::warn(
            text!("the oracle is left out", "没有选 oracle"),
            text!("add it: no gate passes without", "加入它：没有 oracle 则任何门禁都不会通过"),
        )),
    }
}

fn samples(place: &Place<'_>) -> Found {
    let run = place.run()?;
    let n = run.spec.n_samples;
    let bound = 100.0 * (1.0 - 0.05_f64.powf(1.0 / n.max(1) as f64));
    let measured = text!(
        "n = {n} a rung bounds lost recall to {bound:.2} pp at best",
        "每个梯级 n = {n}，召回损失至多只能界定在 {bound:.2} 个百分点内"
    );
    if n >= DECIDING_SAMPLES {
        return Ok(Finding::pass(measured));
    }
    let hint = text!(
        "{DECIDING_SAMPLES} would bound it to 5 pp: {} more a rung",
        "{DECIDING_SAMPLES} 个可界定在 5 个百分点内：每个梯级再加 {} 个",
        DECIDING_SAMPLES - n
    );
    let finding = Finding::warn(measured, hint);
    Err(if fix::preview(place.subject, fix::SAMPLES).is_ok() { finding.fixable() } else { finding })
}

fn tokens(place: &Place<'_>) -> Found {
    let budget = place.run()?.spec.max_new_tokens;
    let (prompts, _) = tokenizer::prompts(place)?;
    let longest = prompts.iter().map(|prompt| prompt.answer_tokens).max().unwrap_or(0);
    let measured = text!(
        "{budget} tokens; the first codes take up to {longest}",
        "{budget} 个词元；首批代号最多占 {longest} 个"
    );
    if budget < longest {
        return Err(Finding::fail(
            measured,
            text!("raise the budget; the ladder's standard is 24", "提高上限；各梯级的标准是 24"),
        ));
    }
    if budget < ROOM {
        return Err(Finding::warn(
            measured,
            text!(
                "raise the budget: a few words before a code cost the code",
                "提高上限：代号前的几个词就会挤掉代号"
            ),
        ));
    }
    Ok(Finding::pass(measured))
}

fn counterpart(place: &Place<'_>) -> Found {
    let run = place.run()?;
    let path = run
        .counterpart
        .as_deref()
        .ok_or_else(|| Finding::skipped(text!("no counterpart chosen", "没有选择对照文件")))?;
    let read = |path: &Path| evidence::read(&evidence::Place::from(path));
    let file = read(path).map_err(|e| {
        Finding::fail(Text::same(e), text!("choose another evidence file", "选择另一个证据文件"))
    })?;
    let (named, variant) = (name(path), stated_variant(&file));
    let audit = evidence::audit(std::slice::from_ref(&file)).pop();
    let niah = audit.and_then(|audit| audit.niah);
    let niah = niah.ok_or_else(|| {
        Finding::fail(
            text!("{named} is no needle evidence", "{named} 不是大海捞针证据"),
            text!("choose another file", "选择另一个文件"),
        )
    })?;
    let differs = differences(&run.spec, &niah, variant);
    if differs.is_empty() {
        return Ok(Finding::pass(text!("as in {named}", "与 {named} 相同")));
    }
    let hint = text!(
        "take the counterpart's settings, or expect that the two are not comparable",
        "采用对照文件的设置，否则两者可能不可比较"
    );
    let differs = Text::join(&differs, &text!(", ", "，"));
    let measured = text!(language => "{named} has {}", "{named} 为：{}", differs.said(language));
    Err(Finding::warn(measured, hint))
}

/// The prompt variant that a file states; of files that state none, what their prompts' lengths tell.
fn stated_variant(file: &File) -> Option<String> {
    let stated = file.value.pointer("/config/prompt_variant")?;
    stated.as_str().map(str::to_owned)
}

/// What the counterpart has where this run has something else. What its file does not say is not compared.
fn differences(spec: &RunSpec, theirs: &Niah, variant: Option<String>) -> Vec<Text> {
    let lines = theirs.min_lines.zip(theirs.max_lines);
    let has_rung = |(low, high): (u64, u64)| {
        spec.ladder.iter().any(|rung| {
            let ours = rung.line_bounds();
            (u64::from(ours.0), u64::from(ours.1)) == (low, high)
        })
    };
    let variant = variant.unwrap_or_else(|| word(&theirs.prompt_variant()));
    let number = |name: Text, ours: u64, theirs: Option<u64>| {
        let differs = theirs.filter(|theirs| *theirs != ours);
        differs.map(|theirs| text!(language => "{} {theirs}", "{} {theirs}", name.said(language)))
    };
    let seed = theirs.seed.filter(|seed| *seed != spec.seed).map(|seed| text!("seed {seed}", "种子 {seed}"));
    let rung = lines
        .filter(|lines| !has_rung(*lines))
        .map(|(low, high)| text!("{low} to {high} lines", "{low} 到 {high} 行"));
    let prompt = (variant != word(&spec.prompt)).then(|| text!("prompt {variant}", "提示词 {variant}"));
    let numbers = [
        number(text!("sink", "sink"), spec.sink as u64, theirs.sink),
        number(text!("window", "窗口"), spec.window as u64, theirs.window),
        number(text!("budget", "词元上限"), spec.max_new_tokens as u64, theirs.max_new_tokens),
        number(text!("n", "n"), spec.n_samples as u64, Some(theirs.n)),
    ];
    seed.into_iter().chain(rung).chain(prompt).chain(numbers.into_iter().flatten()).collect()
}

fn output(place: &Place<'_>) -> Found {
    let PlannedRun { out, .. } = place.run()?;
    let existing =
        out.ancestors().find(|folder| folder.symlink_metadata().is_ok() && !folder.as_os_str().is_empty());
    let folder = existing.unwrap_or(Path::new("."));
    let refused = |reason: Text| {
        Finding::fail(
            text!(language => "{}: {}", "{}：{}", folder.display(), reason.said(language)),
            text!("choose another folder, or change its permissions", "选择另一个文件夹，或更改其权限"),
        )
    };
    let meta = folder.metadata().map_err(|e| refused(Text::same(e)))?;
    if !meta.is_dir() {
        return Err(refused(text!("is no folder", "不是文件夹")));
    }
    if meta.permissions().readonly() {
        return Err(refused(text!("is read-only", "是只读的")));
    }
    // Asked of the system itself: permission bits do not tell of read-only file systems. The file vanishes at once.
    tempfile::tempfile_in(folder).map_err(|e| refused(Text::same(e)))?;
    Ok(Finding::pass(Text::same(out.display())))
}

fn revision(place: &Place<'_>) -> Found {
    let hello = place.hello()?;
    let hint = text!(
        "build the program from a clean checkout before evidence that counts",
        "在产生正式证据之前，从干净的检出构建程序"
    );
    let commit = hello.commit.as_deref().map(|commit| commit.get(..12).unwrap_or(commit));
    match commit {
        None => {
            Err(Finding::warn(text!("version {}, no commit known", "版本 {}，提交未知", hello.version), hint))
        }
        Some(commit) if hello.dirty => Err(Finding::warn(
            text!("commit {commit}, with uncommitted changes", "提交 {commit}，有未提交的更改"),
            hint,
        )),
        Some(commit) => Ok(Finding::pass(text!("commit {commit}, clean", "提交 {commit}，干净"))),
    }
}
