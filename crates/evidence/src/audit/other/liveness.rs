//! The reference's own gate on fused chats on a Mac (EVIDENCE §3.1): did proposer and f_θ run in every turn?

use crate::audit::arms::degenerate;
use crate::audit::repo_gate::truthy;
use crate::json::At;
use serde_json::Value;

/// Codes of that gate, each once, in the order of its table; None for any other kind. A vocabulary of its own.
pub(in crate::audit) fn codes(value: &Value) -> Option<Vec<&'static str>> {
    (value.text("/kind") == Some("mac_gemma4_kakeya_fused_chat")).then(|| chat_codes(value))
}

fn chat_codes(value: &Value) -> Vec<&'static str> {
    let turns = value.list("/turns").unwrap_or_default();
    if turns.is_empty() {
        return vec!["MISSING_LIVENESS"];
    }
    let blocks: Option<f64> = turns.iter().map(|turn| turn.number("/blocks")).sum();
    let restored: Option<Vec<bool>> = turns.iter().map(|turn| turn.at("/f_theta_ran").map(truthy)).collect();
    let intended = value.is_on("/f_theta_intended");
    let fell_back = |part: &Value| part.at("/fallbacks_taken").is_some_and(truthy);
    let unproved = blocks.is_none() || (intended && restored.is_none());
    let bypassed = intended && restored.is_some_and(|turns| turns.contains(&false));
    let degenerated = turns.iter().filter_map(|turn| turn.text("/text")).any(degenerate);
    [
        ("MISSING_LIVENESS", unproved),
        ("PROPOSER_NEVER_RAN", blocks.is_some_and(|blocks| blocks <= 0.0)),
        ("FTHETA_NOT_RUN", bypassed),
        ("SILENT_FALLBACK", fell_back(value) || turns.iter().any(fell_back)),
        ("OUTPUT_DEGENERATE", degenerated),
    ]
    .into_iter()
    .filter_map(|(code, fires)| fires.then_some(code))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chat() -> Value {
        json!({
            "kind": "mac_gemma4_kakeya_fused_chat",
            "f_theta_intended": true,
            "fallbacks_taken": [],
            "turns": [
                { "text": "Paris.", "blocks": 2, "f_theta_ran": true, "fallbacks_taken": [] },
                { "text": "Red, yellow and blue.", "blocks": 4, "f_theta_ran": true },
            ],
        })
    }

    fn edited(pointer: &str, new: Value) -> Vec<&'static str> {
        let mut value = chat();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[key] = new;
        codes(&value).unwrap_or_default()
    }

    #[test]
    fn each_sign_of_a_part_that_never_ran_is_found() {
        assert_eq!(codes(&chat()), Some(vec![]));
        assert!(edited("/kind", json!("another")).is_empty());
        let loops = "*   *\n".repeat(8);
        for (pointer, new, want) in [
            ("/turns", json!([]), "MISSING_LIVENESS"),
            ("/turns/0/blocks", json!(true), "MISSING_LIVENESS"),
            ("/turns/1/f_theta_ran", json!(null), "MISSING_LIVENESS"),
            ("/turns", json!([{ "blocks": 0, "f_theta_ran": true }]), "PROPOSER_NEVER_RAN"),
            ("/turns/1/f_theta_ran", json!(false), "FTHETA_NOT_RUN"),
            ("/fallbacks_taken", json!(["native"]), "SILENT_FALLBACK"),
            ("/turns/0/fallbacks_taken", json!(["native"]), "SILENT_FALLBACK"),
            ("/turns/0/text", json!(loops), "OUTPUT_DEGENERATE"),
        ] {
            assert_eq!(edited(pointer, new), [want], "{pointer}");
        }
        let mut unintended = chat();
        unintended["f_theta_intended"] = json!(false);
        unintended["turns"][0]["f_theta_ran"] = json!(false);
        assert_eq!(codes(&unintended), Some(vec![]));
    }
}
