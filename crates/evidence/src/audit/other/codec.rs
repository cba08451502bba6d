//! `k2a_kl_mac_smoke`: the codec's round trip on random K and V.

use super::{Case, Family, claim};
use crate::Finding;
use crate::audit::Verdict;
use crate::json::At;
use crate::text;
use serde_json::{Value, json};

pub(super) const FAMILY: Family = Family {
    holds: |shape| shape == "k2a_kl_mac_smoke",
    summary: |case| claim(case.value, "/summary", &["status"]),
    rules,
    verdict: |case, _| {
        if measured_pass(case.value) == Some(true) { Verdict::Pass } else { Verdict::Fail }
    },
};

/// Whether both measured errors keep the bound (RULES §6.2); None when a number is missing.
pub(in crate::audit) fn measured_pass(value: &Value) -> Option<bool> {
    let bound = value.number("/config/rmse_bound")?;
    let error = |key: &str| value.number(&format!("/checks/direct_codec/{key}"));
    Some(error("K_relative_mse")? <= bound && error("V_relative_mse")? <= bound)
}

fn rules(case: &Case, out: &mut Vec<Finding>) {
    status(case.value, out);
    compression(case.value, out);
}

fn status(value: &Value, out: &mut Vec<Finding>) {
    let pointer = "/summary/status";
    let Some((status, passed)) = value.text(pointer).zip(measured_pass(value)) else { return };
    if (status == "pass") != passed {
        let message = if passed {
            text!(
                "the status is {status}, the measured errors keep the bound",
                "状态为 {status}，而实测误差在上限之内"
            )
        } else {
            text!(
                "the status is {status}, the measured errors break the bound",
                "状态为 {status}，而实测误差超出上限"
            )
        };
        out.push(Finding::new("STATUS_CONTRADICTION", pointer, message, json!({})));
    }
}

fn compression(value: &Value, out: &mut Vec<Finding>) {
    let pointer = "/checks/kakeyalattice_adapter/memory_bytes_after_full_compress";
    let identity = value.number("/checks/identity_adapter/memory_bytes");
    if let Some(bytes) = value.number(pointer).filter(|bytes| Some(*bytes) == identity) {
        let message = text!(
            "{bytes} bytes after compression, as many as without the codec",
            "压缩后为 {bytes} 字节，与不用编解码器时一样多"
        );
        out.push(Finding::new(
            "CODEC_NO_COMPRESSION",
            pointer,
            message,
            json!({ "bytes": value.at(pointer) }),
        ));
    }
}
