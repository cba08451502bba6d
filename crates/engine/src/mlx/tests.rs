//! The operations, held against candle's.

use super::*;
use crate::backend::Numbers;
use crate::candle::Candle;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Open, and the turn of this test: MLX is not safe to share between threads.
fn mlx() -> (Mlx, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (Mlx::open(protocol::Backend::Mlx.device()).unwrap(), turn)
}

fn bytes(count: usize, step: f32) -> Vec<u8> {
    (0..count).flat_map(|i| (2.0 * (i as f32 * step).sin()).to_le_bytes()).collect()
}

fn wave<B: Backend>(b: &B, shape: &[usize], step: f32) -> B::Tensor {
    b.tensor(Dtype::F32, shape, &bytes(shape.iter().product(), step)).unwrap()
}

fn values<B: Backend>(b: &B, x: &B::Tensor) -> (Vec<usize>, Vec<f32>) {
    (b.shape(x), b.to_f32(x).unwrap())
}

/// Numbers whose phase grows ever faster: their products with a wave do not cancel out.
fn dense(shape: &[usize], step: f32) -> Stored {
    let value = |i: usize| 2.0 * ((i * i % 1009) as f32 * step).sin();
    let bytes = (0..shape.iter().product()).flat_map(|i| value(i).to_le_bytes()).collect::<Vec<_>>().into();
    let values = Numbers { dtype: Dtype::F32, bytes };
    Stored::Dense { shape: shape.to_vec(), values }
}

/// Codes of 4 bits, whose scales and biases lie in half precision.
fn affine(shape: &[usize], group: usize, step: f32) -> Stored {
    let count: usize = shape.iter().product();
    let codes =
        (0..count / 2).map(|i| (127.0 + 127.0 * (i as f32 * step).sin()) as u8).collect::<Vec<_>>().into();
    let halves = |first: u16| Numbers {
        dtype: Dtype::BF16,
        bytes: (0..count / group)
            .flat_map(|i| (first + i as u16 % 16).to_le_bytes())
            .collect::<Vec<_>>()
            .into(),
    };
    // 1/16 and a little more, -0.5 and a little less.
    Stored::Affine {
        shape: shape.to_vec(),
        bits: 4,
        group,
        codes,
        scales: halves(0x3d80),
        biases: halves(0xbf00),
    }
}

/// Demands of both libraries the same numbers to 1e-5 of the largest.
fn same(what: &str, ours: (Vec<usize>, Vec<f32>), theirs: (Vec<usize>, Vec<f32>)) {
    assert_eq!(ours.0, theirs.0, "{what}");
    let largest = theirs.1.iter().fold(0f32, |most, value| most.max(value.abs()));
    assert!(largest > 0.1, "{what}: nothing to compare");
    let worst = ours.1.iter().zip(&theirs.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 1e-5 * largest.max(1.0), "{what}: {worst} of {largest}");
}

/// Runs one closure, generic by its two copies, on both libraries.
macro_rules! on_both {
    ($what:expr, |$b:ident| $work:expr) => {{
        let (mlx, _turn) = mlx();
        let ours = {
            let $b = &mlx;
            values($b, &$work)
        };
        let theirs = {
            let $b = &Candle::cpu();
            values($b, &$work)
        };
        same(&$what, ours, theirs);
    }};
}

#[test]
fn attention_is_the_same_under_every_mask() {
    fn attended<B: Backend>(b: &B, queries: usize, cuts: &[usize], mask: Mask) -> (B::Tensor, f64) {
        let (heads, groups, dim, len) = (4, 2, 16, 1300);
        let q = wave(b, &[heads, queries, dim], 0.71);
        let side = |step| wave(b, &[groups, len + 60, dim], step);
        // Values that do not cancel out over many keys.
        let (k, v) = (side(1.37), side(3e-5));
        let edges = [&[0], cuts, &[len]].concat();
        let segment = |edge: &[usize]| {
            let part = |x: &B::Tensor| b.view(x, 1, edge[0]..edge[1]).unwrap();
            Segment { positions: edge[0]..edge[1], k: part(&k), v: part(&v) }
        };
        let keys: Vec<_> = edges.windows(2).map(segment).collect();
        let mass = b.attention_mass(&q, &keys, 0.3, mask, 4..700).unwrap();
        (b.attention(&q, &keys, 0.3, mask).unwrap(), mass)
    }
    for mask in [
        Mask::Everything,
        Mask::Causal,
        Mask::Sliding { window: 50 },
        Mask::SinkWindow { sink: 4, window: 64 },
        Mask::Hiding { from: 4, to: 1236, window: None },
        Mask::Hiding { from: 4, to: 236, window: Some(128) },
        Mask::Hiding { from: 0, to: 1299, window: Some(128) },
    ] {
        for (queries, cuts) in [
            (1300, vec![]),
            (1300, vec![4, 600]),
            (700, vec![300]),
            (1, vec![1299]),
            (1, vec![4, 1299]),
            (1, vec![]),
        ] {
            let what = format!("{mask:?}, {queries} queries, keys cut at {cuts:?}");
            let (mlx, _turn) = mlx();
            let (ours, our_mass) = attended(&mlx, queries, &cuts, mask);
            let candle = Candle::cpu();
            let (theirs, their_mass) = attended(&candle, queries, &cuts, mask);
            same(&what, values(&mlx, &ours), values(&candle, &theirs));
            assert!((our_mass - their_mass).abs() < 1e-5, "{what}: {our_mass} {their_mass}");
        }
    }
}

#[test]
fn norms_rotations_and_gates_are_the_same() {
    for width in [8, 96, 640] {
        on_both!("RMS norm", |b| b.rms_norm(&wave(b, &[7, width], 0.7), None, 1e-6).unwrap());
        on_both!("weighted RMS norm", |b| {
            let weight = wave(b, &[width], 0.3);
            b.rms_norm(&wave(b, &[3, 5, width], 0.7), Some(&weight), 1e-6).unwrap()
        });
        on_both!("RoPE", |b| {
            let turning = (0..width / 2).map(|i| if i < width / 4 { 0.9_f32.powi(i as i32) } else { 0.0 });
            let angles = b.angles(&turning.collect::<Vec<_>>(), 9..20).unwrap();
            b.rope(&wave(b, &[3, 11, width], 0.7), &angles).unwrap()
        });
        on_both!("weighted RoPE", |b| {
            let angles = b.angles(&vec![0.3; width / 2], 9..20).unwrap();
            b.weighted_rope(&wave(b, &[3, 11, width], 0.7), &wave(b, &[width], 0.3), &angles).unwrap()
        });
        for activation in [Activation::GeluTanh, Activation::Silu] {
            on_both!("gate", |b| {
                b.gated(activation, &wave(b, &[9, width], 0.7), &wave(b, &[9, width], 1.9)).unwrap()
            });
        }
        on_both!("softcap", |b| b.softcap(&wave(b, &[9, width], 0.7), 1.5).unwrap());
    }
}

#[test]
fn parts_are_written_replaced_and_joined_alike() {
    on_both!("write", |b| {
        let mut x = b.zeros(&[2, 9, 3]).unwrap();
        b.write(&mut x, 1, 4, &wave(b, &[2, 1, 3], 0.7)).unwrap();
        b.write(&mut x, 1, 7, &wave(b, &[2, 2, 3], 0.9)).unwrap();
        x
    });
    on_both!("write one head", |b| {
        let mut x = b.zeros(&[1, 9, 3]).unwrap();
        b.write(&mut x, 1, 4, &wave(b, &[1, 1, 3], 0.7)).unwrap();
        x
    });
    on_both!("replaced rows", |b| {
        b.replace_rows(&wave(b, &[9, 2, 3], 0.2), 5, &wave(b, &[2, 2, 3], 0.9)).unwrap()
    });
    on_both!("joined parts", |b| {
        let x = wave(b, &[4, 9, 3], 0.7);
        let (first, second) = (b.view(&x, 1, 2..5).unwrap(), b.slice(&x, 1, 0..2).unwrap());
        b.head_major(&b.concat(1, &[&first, &second]).unwrap()).unwrap()
    });
}

#[test]
fn weights_are_multiplied_and_looked_up_alike() {
    let stored = [
        ("dense", dense(&[24, 64], 0.7)),
        ("groups of 32", affine(&[24, 64], 32, 0.7)),
        ("groups of 64", affine(&[24, 64], 64, 0.7)),
        ("groups of 16, expanded", affine(&[24, 64], 16, 0.7)),
    ];
    for (what, stored) in stored {
        for rows in [1, 40] {
            on_both!(what, |b| {
                let weight = b.weight(stored.clone()).unwrap();
                let product = b.linear(&wave(b, &[rows, 64], 0.9), &weight).unwrap();
                b.concat(1, &[&product, &b.embed(&weight, &b.ids(&vec![7; rows]), 3.0).unwrap()]).unwrap()
            });
        }
    }
    let (mlx, _turn) = mlx();
    let quantised = mlx.weight(affine(&[24, 64], 32, 0.7)).unwrap();
    assert!(matches!(quantised, Weight::Affine(_)), "it stays as it is stored");
    let integers =
        Stored::Dense { shape: vec![1, 2], values: Numbers { dtype: Dtype::I32, bytes: vec![0; 8].into() } };
    assert!(mlx.weight(integers).is_err());
}

#[test]
fn experts_are_the_same_together_and_chosen_few_rows_and_many() {
    let (inner, hidden) = (32, 64);
    for count in [5, 40] {
        for quantised in [false, true] {
            for rows in [1, 11, 70] {
                on_both!(format!("{count} experts, {rows} rows, quantised: {quantised}"), |b| {
                    let stored = |shape: &[usize], step| {
                        if quantised { affine(shape, 32, step) } else { dense(shape, step) }
                    };
                    let (gate, up) = stored(&[count, 2 * inner, hidden], 0.7).halves();
                    let factors = (0..count).map(|i| 0.5 + i as f32 / 20.0).collect();
                    let experts = b.experts(gate, up, stored(&[count, hidden, inner], 1.3), factors).unwrap();
                    let x =
                        b.scale(&wave(b, &[rows, hidden], 0.9), if quantised { 0.5 } else { 0.2 }).unwrap();
                    b.mixture(&x, &wave(b, &[rows, count], 2.1), 2, &experts).unwrap()
                });
            }
        }
    }
}

#[test]
fn the_first_of_equal_logits_wins() {
    let row = [0.5_f32, -1.0, 2.5, 0.0, 2.5, 2.5, 1.0, 2.0];
    let bytes: Vec<u8> = [[9.0; 8], row].concat().into_iter().flat_map(f32::to_le_bytes).collect();
    let (mlx, _turn) = mlx();
    let logits = mlx.tensor(Dtype::F32, &[2, 8], &bytes).unwrap();
    assert_eq!(mlx.id(&mlx.argmax_last(&logits).unwrap()).unwrap(), 2);
}

#[test]
fn memory_is_counted_by_kind_and_its_peak_starts_anew() {
    let (mlx, _turn) = mlx();
    let told = || mlx.device_memory().unwrap();
    let before = told().allocator_active_bytes.unwrap();
    let large = mlx.scale(&wave(&mlx, &[1024, 1024], 0.7), 2.0).unwrap();
    mlx.evaluate(&[&large]).unwrap();
    assert!(told().allocator_active_bytes.unwrap() >= before + (4 << 20));
    assert!(told().allocator_peak_bytes.unwrap() >= before + (4 << 20));
    drop(large);
    let after = told();
    assert!(after.allocator_active_bytes.unwrap() < before + (4 << 20));
    assert!(after.allocator_cache_bytes.unwrap() >= 4 << 20, "freed memory is kept: {after:?}");
    mlx.reset_device_peak().unwrap();
    assert!(told().allocator_peak_bytes.unwrap() < before + (4 << 20));
    assert!(after.total_bytes > 1 << 30 && after.used_bytes.is_none());
}

#[test]
fn other_devices_are_refused_with_what_to_do() {
    let other = if cfg!(target_os = "macos") { protocol::Device::Cuda } else { protocol::Device::Metal };
    let report = Mlx::open(other).unwrap_err().report();
    assert_eq!(report.code, protocol::ErrorCode::DeviceUnusable);
    assert!(report.hint.contains("--device"), "{report:?}");
}

#[test]
fn the_versions_are_those_that_are_linked() {
    let lock = include_str!("../../../../Cargo.lock");
    let (mlx, mlx_rs) = VERSION.split_once(", mlx-rs ").unwrap();
    assert!(lock.contains(&format!("name = \"mlx-rs\"\nversion = \"{mlx_rs}\"")));
    for wheels in
        [include_str!("../../../../scripts/mlx/linux.txt"), include_str!("../../../../scripts/mlx/macos.txt")]
    {
        assert!(wheels.contains(&format!("=={mlx} ")), "{wheels}");
    }
}
