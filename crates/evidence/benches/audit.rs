//! Reading, auditing and comparing single files, in memory. Whole folders: `cargo xtask bench audit`.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is none")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use evidence::{File, Policy};
use std::hint::black_box;
use std::path::Path;

fn fixtures(c: &mut Criterion) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let places = evidence::find(&[fixtures.join("evidence"), fixtures.join("kinds")]);
    let files: Vec<(Vec<u8>, File)> = places
        .iter()
        .map(|place| (std::fs::read(&place.path).unwrap(), evidence::read(place).unwrap()))
        .collect();
    let mut group = c.benchmark_group("file");
    for (bytes, file) in &files {
        group.throughput(Throughput::Bytes(file.bytes));
        group.bench_function(BenchmarkId::new("parse", &file.name), |b| {
            b.iter(|| File::parse(file.place.clone(), black_box(bytes)).unwrap());
        });
        group.bench_function(BenchmarkId::new("audit", &file.name), |b| {
            b.iter(|| evidence::audit(black_box(std::slice::from_ref(file))));
        });
    }
    group.finish();
    let files: Vec<File> = files.into_iter().map(|(_, file)| file).collect();
    let audits = evidence::audit(&files);
    let needles: Vec<_> = audits.iter().filter(|audit| audit.niah.is_some()).collect();
    c.bench_function("compare", |b| b.iter(|| evidence::compare(black_box(needles[0]), needles[1])));
    c.bench_function("gate", |b| b.iter(|| evidence::gate(black_box(&audits), &Policy::built_in())));
}

criterion_group!(benches, fixtures);
criterion_main!(benches);
