//! The whole corpus, every kind: each file is read, audited and gated without failure and with a reason.
//! Skipped when `KAKEYA_GATE_REFERENCE` is unset.

#[test]
fn every_file_of_the_corpus_is_audited_and_gated() {
    let Some(root) = std::env::var_os("KAKEYA_GATE_REFERENCE") else {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
        return;
    };
    let evidence = std::path::PathBuf::from(root).join("evidence");
    let paths = evidence::find(&[evidence.join("corpus"), evidence.join("branch-only")]);
    assert!(!paths.is_empty());
    let scan = evidence::scan(&paths, || {});
    assert!(scan.unreadable.is_empty(), "{:?}", scan.unreadable);
    let audits = scan.audits;
    assert_eq!(audits.len(), paths.len());
    for audit in &audits {
        assert_eq!(audit.malformed, [], "{}", audit.path.display());
    }
    let silent: Vec<String> = evidence::gate(&audits, &evidence::Policy::built_in())
        .cells
        .iter()
        .filter(|cell| cell.why.en().is_empty())
        .map(|cell| format!("{:?} {:?} {:?}", cell.file, cell.gate, cell.verdict))
        .collect();
    assert!(silent.is_empty(), "no reason given: {silent:#?}");
    for finding in audits.iter().flat_map(|audit| &audit.findings) {
        assert!(
            !finding.message.en().is_empty() && !finding.why.en().is_empty() && !finding.fix.en().is_empty(),
            "{}",
            finding.code
        );
    }
}
