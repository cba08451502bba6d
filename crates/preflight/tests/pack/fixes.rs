//! A fix is shown, made, taken back byte for byte, and made again; it writes nowhere else.

use crate::support::{Sandbox, edit, row, spec};
use preflight::{Fixed, PlannedRun, Status, Subject, apply, preview, undo};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

const TOKENS: &str = "tokenizer-special-tokens";

/// As a converter wrote it, but for a number that no double holds and a letter that JSON may escape.
const CONFIG: &str = r#"{
  "bos_token": "<bos>",
  "extra_special_tokens": [
    "<|turn>",
    "<turn|>"
  ],
  "model_max_length": 1000000000000000019884624838656,
  "note": "\u00e9"
}
"#;

const FIXED: &str = r#"{
  "bos_token": "<bos>",
  "extra_special_tokens": {
    "<|turn>": "<|turn>",
    "<turn|>": "<turn|>"
  },
  "model_max_length": 1000000000000000019884624838656,
  "note": "\u00e9"
}
"#;

fn with_config(text: &str) -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new();
    let config = sandbox.pack().join("verifier/tokenizer_config.json");
    fs::write(&config, text).unwrap();
    (sandbox, config)
}

fn make(subject: &Subject, id: &str) -> Result<Fixed, String> {
    apply(subject, id, &mut |_| ()).map_err(|e| e.to_string())
}

#[test]
fn a_fix_is_shown_made_taken_back_and_made_again() {
    let (sandbox, config) = with_config(CONFIG);
    let subject = sandbox.subject();
    let before = sandbox.content();
    let change = preview(&subject, TOKENS).unwrap().unwrap();
    assert_eq!(change.path, config);
    insta::assert_snapshot!(change.diff);
    assert!(sandbox.content() == before, "showing changes nothing");

    let backup = config.with_file_name("tokenizer_config.json.kakeya-backup");
    let made = make(&subject, TOKENS).unwrap();
    assert_eq!(made, Fixed::Changed { path: config.clone(), backup: backup.clone() });
    assert_eq!(fs::read_to_string(&config).unwrap(), FIXED);
    assert_eq!(fs::read_to_string(&backup).unwrap(), CONFIG);
    let fixed = sandbox.content();
    let row_now = row(&subject, TOKENS);
    assert_eq!((row_now.status, row_now.undoable, row_now.fixable), (Status::Pass, true, false));
    let rest = |content: &[(PathBuf, Vec<u8>)]| {
        content.iter().filter(|(path, _)| *path != config && *path != backup).cloned().collect::<Vec<_>>()
    };
    assert!(rest(&fixed) == rest(&before), "nothing else is touched");

    assert_eq!(make(&subject, TOKENS).unwrap(), Fixed::Nothing);
    assert_eq!(preview(&subject, TOKENS).unwrap(), None);
    assert!(sandbox.content() == fixed, "a second fix does nothing");

    assert_eq!(undo(&subject, TOKENS).unwrap(), config);
    assert!(sandbox.content() == before, "all is as it was");
    assert!(!row(&subject, TOKENS).undoable);
    assert_eq!(
        undo(&subject, TOKENS).unwrap_err().to_string(),
        format!("{} has no backup", config.display())
    );

    make(&subject, TOKENS).unwrap();
    assert!(sandbox.content() == fixed, "the second time as the first");
}

/// The engine refuses a file whose digest is not the stated one, so the manifest follows.
#[test]
fn a_stated_digest_follows_its_file_and_comes_back() {
    let (sandbox, config) = with_config(CONFIG);
    let digest = files::sha256(CONFIG.as_bytes());
    edit(&sandbox.pack().join("pack.json"), |manifest| {
        manifest["sha256"] = json!({ "verifier/tokenizer_config.json": digest });
    });
    let (subject, before) = (sandbox.subject(), sandbox.content());
    let change = preview(&subject, TOKENS).unwrap().unwrap();
    assert!(change.diff.contains("+++ tokenizer_config.json") && change.diff.contains("+++ pack.json"));
    make(&subject, TOKENS).unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), FIXED);
    let manifest = fs::read_to_string(sandbox.pack().join("pack.json")).unwrap();
    assert!(manifest.contains(&files::sha256(FIXED.as_bytes())) && !manifest.contains(&digest));
    assert_eq!(row(&subject, "pack-digests").status, Status::Pass);
    assert_eq!(make(&subject, TOKENS).unwrap(), Fixed::Nothing);
    undo(&subject, TOKENS).unwrap();
    // Digests of files that were written a moment ago are not kept; then there is none.
    let _ = fs::remove_dir_all(sandbox.root().join("cache"));
    assert!(sandbox.content() == before, "both files are as they were");
}

#[test]
fn forms_of_the_list() {
    for (list, object) in [
        (json!([]), json!({})),
        (json!(["<a>"]), json!({ "<a>": "<a>" })),
        (json!([{ "content": "<a>", "lstrip": true }, "<b>"]), json!({ "<a>": "<a>", "<b>": "<b>" })),
    ] {
        let (sandbox, config) = with_config(&json!({ "extra_special_tokens": list, "x": [1] }).to_string());
        make(&sandbox.subject(), TOKENS).unwrap();
        let fixed: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        assert_eq!(fixed, json!({ "extra_special_tokens": object, "x": [1] }));
    }
    for (text, found) in [
        (r#"{"extra_special_tokens": [7]}"#, "a list whose entry 0 is neither"),
        (r#"{"extra_special_tokens": [""]}"#, "a list whose entry 0 is neither"),
        (r#"{"extra_special_tokens": [{"name": "x"}]}"#, "a list whose entry 0 is neither"),
        (r#"{"extra_special_tokens": "x"}"#, "a string"),
        (r#"{"extra_special_tokens": true}"#, "true or false"),
        (r#"{"extra_special_tokens": ["x"], "extra_special_tokens": ["y"]}"#, "twice"),
        (r#"{"extra_special_tokens": ["x"]"#, "not JSON"),
    ] {
        let (sandbox, _) = with_config(text);
        let before = sandbox.content();
        let refused = make(&sandbox.subject(), TOKENS).unwrap_err();
        assert!(refused.contains(found), "{text}: {refused}");
        assert!(sandbox.content() == before, "{text}");
    }
}

#[test]
fn what_a_user_changed_after_a_fix_is_not_lost() {
    let (sandbox, config) = with_config(CONFIG);
    let subject = sandbox.subject();
    make(&subject, TOKENS).unwrap();
    fs::write(&config, FIXED.replace("<bos>", "<s>")).unwrap();
    let before = sandbox.content();
    let refused = undo(&subject, TOKENS).unwrap_err().to_string();
    assert!(refused.contains("was changed after it was fixed; its old content is in"), "{refused}");
    // The faulty file comes back from elsewhere, a little different: its backup must not replace the first one.
    assert!(sandbox.content() == before);
    fs::write(&config, CONFIG.replace("<bos>", "<s>")).unwrap();
    let refused = make(&subject, TOKENS).unwrap_err();
    assert!(refused.contains("is the backup of an earlier fix"), "{refused}");
    // The very same faulty file may be fixed again.
    fs::write(&config, CONFIG).unwrap();
    make(&subject, TOKENS).unwrap();
    undo(&subject, TOKENS).unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), CONFIG);
}

#[test]
fn samples_are_raised_in_the_file_of_the_run() {
    let sandbox = Sandbox::new();
    let file = sandbox.root().join("run.json");
    let text = "{\"n_samples\": 20, \"arms\": [\"oracle\"]}\n";
    fs::write(&file, text).unwrap();
    let run = PlannedRun {
        spec: spec(&sandbox.pack()),
        spec_file: Some(file.clone()),
        out: sandbox.root().join("evidence"),
        counterpart: None,
    };
    let mut subject = Subject { run: Some(run), ..sandbox.subject() };
    subject.run.as_mut().unwrap().spec.n_samples = 20;
    assert!(row(&subject, "spec-samples").fixable);
    make(&subject, "spec-samples").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text.replace("20", "59"));
    undo(&subject, "spec-samples").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    subject.run.as_mut().unwrap().spec_file = None;
    assert!(!row(&subject, "spec-samples").fixable, "the form's own settings are changed there");
    assert_eq!(make(&subject, "spec-samples").unwrap_err(), "\"spec-samples\" has no fix of its own");
}

#[test]
fn a_check_without_a_fix_says_so() {
    let sandbox = Sandbox::new();
    for id in ["host-disk", "no-such-check"] {
        assert_eq!(make(&sandbox.subject(), id).unwrap_err(), format!("{id:?} has no fix of its own"));
    }
    assert_eq!(make(&sandbox.subject(), "verifier-weights").unwrap(), Fixed::Nothing);
}

#[cfg(unix)]
mod outside {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn lock(folder: &std::path::Path, mode: u32) {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_read_only_folder_is_left_alone() {
        let (sandbox, _) = with_config(CONFIG);
        let folder = sandbox.pack().join("verifier");
        lock(&folder, 0o555);
        let before = sandbox.content();
        assert_eq!(
            make(&sandbox.subject(), TOKENS).unwrap_err(),
            format!("{} is read-only", folder.display())
        );
        assert!(sandbox.content() == before);
        lock(&folder, 0o755);
    }

    /// Download caches keep files elsewhere and link to them.
    #[test]
    fn a_link_is_replaced_and_its_target_stays() {
        let (sandbox, config) = with_config(CONFIG);
        let elsewhere = sandbox.root().join("blob");
        fs::rename(&config, &elsewhere).unwrap();
        symlink(&elsewhere, &config).unwrap();
        make(&sandbox.subject(), TOKENS).unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), FIXED);
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), CONFIG);
        undo(&sandbox.subject(), TOKENS).unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), CONFIG);
    }

    #[test]
    fn a_folder_outside_the_pack_is_left_alone_unless_named_by_its_whole_path() {
        let (sandbox, _) = with_config(CONFIG);
        let (inside, elsewhere) = (sandbox.pack().join("verifier"), sandbox.root().join("elsewhere"));
        fs::rename(&inside, &elsewhere).unwrap();
        symlink(&elsewhere, &inside).unwrap();
        let before = sandbox.content();
        let refused = make(&sandbox.subject(), TOKENS).unwrap_err();
        assert!(refused.contains("lies outside the pack"), "{refused}");
        assert!(sandbox.content() == before);

        let name = |verifier: &str| {
            crate::support::edit(&sandbox.pack().join("pack.json"), |manifest| {
                manifest["verifier"] = json!(verifier)
            });
        };
        name("../elsewhere");
        let before = sandbox.content();
        assert!(make(&sandbox.subject(), TOKENS).unwrap_err().contains("lies outside the pack"));
        assert!(sandbox.content() == before);

        name(elsewhere.to_str().unwrap());
        make(&sandbox.subject(), TOKENS).unwrap();
        assert_eq!(fs::read_to_string(elsewhere.join("tokenizer_config.json")).unwrap(), FIXED);
    }
}
