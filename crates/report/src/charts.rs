//! Charts as SVG: recall per rung, recall delta against the oracle, figures as bars, recall by depth and length.
//!
//! All are laid out in pixels of their own view box, so that every label has a place of a known size: nothing overlaps,
//! whatever the labels are. A figure scales between about 460 and 800 px. Each is drawn once on light and once on dark
//! ground, and tells what its marks stand for, so that a window can show values under the pointer.

use crate::ReportError;
use crate::text::{fit, platform, tame, width, xml};
use evidence::{Language, Platform, said};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Serialize;
use std::cell::RefCell;
use ts_rs::TS;

const FONTS: &str = "-apple-system, Inter, Segoe UI, sans-serif";
/// For pages whose setter has no locale by which to choose among Chinese, Japanese and Korean forms of a letter.
const CHINESE_FONTS: &str = "Noto Sans CJK SC, Source Han Sans SC, PingFang SC, sans-serif";

/// A chart whose words are set in Chinese forms.
pub(crate) fn in_chinese_fonts(svg: &str) -> String {
    svg.replace(FONTS, CHINESE_FONTS)
}
const FONT_PX: f64 = 12.0;
const WIDTH: i32 = 600;

/// One chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, TS)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// On a light ground, as an SVG document.
    pub light: String,
    /// On a dark ground.
    pub dark: String,
    /// Width of the view box, pixels.
    pub width: u32,
    /// Its height.
    pub height: u32,
    /// What stands where.
    pub spots: Vec<Spot>,
}

/// A mark of a chart and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Spot {
    /// Left edge, pixels of the view box.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// The value in words.
    pub text: String,
}

/// Light or dark surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Palette {
    /// Dark ink on a light ground.
    Light,
    /// Light ink on a dark ground.
    Dark,
}

/// What an arm is, as far as a chart tells arms apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The restored arm that is under test: a filled disc.
    Restored,
    /// Full attention: a square.
    Oracle,
    /// Restored in another way than the arm under test: a triangle.
    Variant,
    /// The verifier's own K/V put back, which proves the plumbing and nothing else: a diamond.
    Identity,
    /// Any other arm, such as sink + window: a ring.
    Control,
}

/// Recall of one arm of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct RecallPoint {
    /// The file, in short.
    pub label: String,
    /// Its rung: padding lines, or line bounds. Rungs with the same text share a column.
    pub rung: String,
    /// Where it ran: decides the colour.
    pub platform: Platform,
    /// The arm in words.
    pub arm: String,
    /// What the arm is: decides the shape.
    pub mark: Mark,
    /// Strict hits.
    pub hits: u64,
    /// Samples.
    pub n: u64,
    /// Lower end of the exact 95 % interval, as a fraction.
    pub low: f64,
    /// Upper end, as a fraction.
    pub high: f64,
}

/// Recall of the system under test less recall of the oracle, in one file.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaRow {
    /// File and rung, in short.
    pub label: String,
    /// Where it ran: decides the colour.
    pub platform: Platform,
    /// The difference, percentage points.
    pub delta_pp: f64,
    /// Lower end of its 95 % interval, percentage points.
    pub low_pp: f64,
    /// Upper end, percentage points.
    pub high_pp: f64,
    /// Pairs.
    pub n: u64,
}

/// Colours of a palette: Okabe and Ito's for the series (their lighter half on dark ground).
struct Ink {
    text: RGBColor,
    dim: RGBColor,
    line: RGBColor,
    band: RGBColor,
    cuda: RGBColor,
    mac: RGBColor,
    cpu: RGBColor,
    unknown: RGBColor,
    oracle: RGBColor,
    ground: RGBColor,
}

impl Palette {
    fn ink(self) -> Ink {
        match self {
            Self::Light => Ink {
                text: RGBColor(27, 27, 25),
                dim: RGBColor(94, 93, 88),
                line: RGBColor(230, 229, 225),
                band: RGBColor(226, 243, 232),
                cuda: RGBColor(0, 114, 178),
                mac: RGBColor(213, 94, 0),
                cpu: RGBColor(0, 128, 94),
                unknown: RGBColor(178, 90, 146),
                oracle: RGBColor(116, 116, 110),
                ground: WHITE,
            },
            Self::Dark => Ink {
                text: RGBColor(236, 235, 230),
                dim: RGBColor(172, 171, 164),
                line: RGBColor(58, 57, 53),
                band: RGBColor(28, 62, 42),
                cuda: RGBColor(86, 180, 233),
                mac: RGBColor(230, 159, 0),
                cpu: RGBColor(32, 190, 145),
                unknown: RGBColor(214, 141, 185),
                oracle: RGBColor(160, 160, 153),
                ground: RGBColor(30, 30, 28),
            },
        }
    }
}

impl Ink {
    fn of(&self, platform: Platform, mark: Mark) -> RGBColor {
        match (mark, platform) {
            (Mark::Oracle, _) => self.oracle,
            (_, Platform::Cuda) => self.cuda,
            (_, Platform::Mac) => self.mac,
            (_, Platform::Cpu) => self.cpu,
            (_, Platform::Unknown) => self.unknown,
        }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A drawing surface with the few shapes that the charts need.
struct Pen<'a> {
    area: Area<'a>,
    ink: Ink,
    spots: RefCell<Vec<Spot>>,
}

fn failed(error: impl std::fmt::Display) -> ReportError {
    ReportError::Chart(error.to_string())
}

impl Pen<'_> {
    fn text(&self, text: &str, at: (i32, i32), side: HPos, colour: RGBColor) -> Result<(), ReportError> {
        // plotters divides the size by 1.24 on the way to SVG.
        let style = TextStyle::from((FONTS, FONT_PX * 1.24)).color(&colour).pos(Pos::new(side, VPos::Center));
        self.area.draw_text(&tame(text), &style, at).map_err(failed)
    }

    fn line(&self, points: [(i32, i32); 2], colour: RGBColor, px: u32) -> Result<(), ReportError> {
        self.area.draw(&PathElement::new(points.to_vec(), colour.stroke_width(px))).map_err(failed)
    }

    fn dashes(&self, x: i32, from: i32, to: i32, colour: RGBColor) -> Result<(), ReportError> {
        (from..to).step_by(6).try_for_each(|y| self.line([(x, y), (x, (y + 3).min(to))], colour, 1))
    }

    /// Says what is drawn between these corners.
    fn spot(&self, [(left, top), (right, bottom)]: [(i32, i32); 2], text: String) {
        self.spots.borrow_mut().push(Spot {
            x: left,
            y: top,
            width: right - left,
            height: bottom - top,
            text: tame(&text),
        });
    }

    fn fill(&self, corners: [(i32, i32); 2], colour: RGBColor) -> Result<(), ReportError> {
        self.area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)
    }

    fn mark(&self, mark: Mark, (x, y): (i32, i32), r: i32, colour: RGBColor) -> Result<(), ReportError> {
        match mark {
            Mark::Restored => self.area.draw(&Circle::new((x, y), r, colour.filled())).map_err(failed),
            Mark::Oracle => self.fill([(x - r + 1, y - r + 1), (x + r - 1, y + r - 1)], colour),
            Mark::Variant => {
                self.area.draw(&TriangleMarker::new((x, y), r + 1, colour.filled())).map_err(failed)
            }
            Mark::Identity => {
                let far = r + 1;
                let corners = [(x, y - far), (x + far, y), (x, y + far), (x - far, y)];
                self.area.draw(&Polygon::new(corners, colour.filled())).map_err(failed)
            }
            Mark::Control => {
                self.area.draw(&Circle::new((x, y), r, self.ink.ground.filled())).map_err(failed)?;
                self.area.draw(&Circle::new((x, y), r, colour.stroke_width(2))).map_err(failed)
            }
        }
    }
}

/// Draws on a surface of this size, on either ground, and gives it its text alternative.
fn chart(
    size: (i32, i32),
    title: &str,
    description: &str,
    draw: impl Fn(&Pen<'_>) -> Result<(), ReportError>,
) -> Result<Chart, ReportError> {
    let (light, spots) = svg(size, Palette::Light, title, description, &draw)?;
    let (dark, _) = svg(size, Palette::Dark, title, description, &draw)?;
    let (width, height) = (size.0 as u32, size.1 as u32);
    Ok(Chart { title: title.to_owned(), light, dark, width, height, spots })
}

fn svg(
    size: (i32, i32),
    palette: Palette,
    title: &str,
    description: &str,
    draw: &impl Fn(&Pen<'_>) -> Result<(), ReportError>,
) -> Result<(String, Vec<Spot>), ReportError> {
    let mut out = String::new();
    let spots = {
        let area = SVGBackend::with_string(&mut out, (size.0 as u32, size.1 as u32)).into_drawing_area();
        let pen = Pen { area, ink: palette.ink(), spots: RefCell::default() };
        pen.fill([(0, 0), size], pen.ink.ground)?;
        draw(&pen)?;
        pen.area.present().map_err(failed)?;
        pen.spots.into_inner()
    };
    let body = out
        .split_once("<svg")
        .and_then(|(_, rest)| rest.split_once('>'))
        .map(|(_, body)| body)
        .ok_or_else(|| failed("the drawing came out empty"))?;
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" \
         aria-label=\"{title}\" style=\"width:100%;height:auto;min-width:{min}px;max-width:{max}px\">\
         <title>{title}</title><desc>{description}</desc>{body}",
        w = size.0,
        h = size.1,
        min = size.0 * 23 / 30,
        max = size.0 * 4 / 3,
        title = xml(title),
        description = xml(description),
    );
    Ok((svg, spots))
}

fn nothing(title: &str, reason: &str) -> Result<Chart, ReportError> {
    chart((WIDTH, 96), title, reason, |pen| pen.text(reason, (WIDTH / 2, 48), HPos::Center, pen.ink.dim))
}

/// Order of a ladder: by the number that a rung begins with, then by its text.
pub(crate) fn ladder(rung: &str) -> (u32, &str) {
    let digits = rung.find(|c: char| !c.is_ascii_digit()).unwrap_or(rung.len());
    (rung[..digits].parse().unwrap_or(u32::MAX), rung)
}

/// Rungs in the order of a ladder, each once.
fn rungs(points: &[RecallPoint]) -> Vec<&str> {
    let mut rungs: Vec<&str> = points.iter().map(|point| point.rung.as_str()).collect();
    rungs.sort_by_key(|rung| ladder(rung));
    rungs.dedup();
    rungs
}

/// Recall per rung with exact 95 % intervals.
///
/// Rungs are columns; within a column the points stand in the order given. Colour tells the platform (the oracle is
/// grey), shape tells the arm.
pub fn recall(points: &[RecallPoint], language: Language) -> Result<Chart, ReportError> {
    let title =
        said!(language, "Recall per rung, with exact 95 % intervals", "各梯级的召回率，95 % 精确区间");
    let rungs = rungs(points);
    if rungs.is_empty() {
        return nothing(
            &title,
            &said!(
                language,
                "Nothing to draw: no arm with samples was given.",
                "没有可画的内容：没有带样本的实验臂。"
            ),
        );
    }
    let columns: Vec<Vec<&RecallPoint>> = rungs
        .iter()
        .map(|rung| points.iter().filter(|point| point.rung == *rung && point.n > 0).collect())
        .collect();
    let busiest = columns.iter().map(Vec::len).max().unwrap_or(1).max(1) as i32;
    let (left, right, bottom) = (44, 14, 46);
    let slot = ((WIDTH - left - right) / rungs.len() as i32).max((busiest * 7 + 12).max(56));
    let full = left + right + slot * rungs.len() as i32;
    let keys = legend(points, full - left - right, language);
    let top = 18 + 20 * keys.last().map_or(0, |key| key.line + 1);
    let (plot, height) = (210, top + 210 + bottom);
    let y = |fraction: f64| top + plot - (fraction.clamp(0.0, 1.0) * f64::from(plot)).round() as i32;
    let description = recall_in_words(points, language);
    chart((full, height), &title, &description, |pen| {
        for key in &keys {
            let at = (left + key.x, 16 + 20 * key.line);
            pen.mark(key.mark, at, 4, pen.ink.of(key.platform, key.mark))?;
            pen.text(&key.text, (at.0 + 10, at.1), HPos::Left, pen.ink.text)?;
        }
        for percent in [0, 25, 50, 75, 100] {
            let at = y(f64::from(percent) / 100.0);
            pen.line([(left, at), (full - right, at)], pen.ink.line, 1)?;
            pen.text(&format!("{percent}"), (left - 8, at), HPos::Right, pen.ink.dim)?;
        }
        pen.text("%", (left - 8, top - 14), HPos::Right, pen.ink.dim)?;
        for (i, (rung, column)) in rungs.iter().zip(&columns).enumerate() {
            let centre = left + slot * i as i32 + slot / 2;
            let label = fit(rung, FONT_PX, f64::from(slot - 8));
            pen.text(&label, (centre, height - bottom + 14), HPos::Center, pen.ink.text)?;
            let step = ((slot - 12) / column.len().max(1) as i32).min(22);
            let first = centre - step * (column.len() as i32 - 1) / 2;
            for (k, point) in column.iter().enumerate() {
                let x = first + step * k as i32;
                let colour = pen.ink.of(point.platform, point.mark);
                pen.line([(x, y(point.low)), (x, y(point.high))], colour, 2)?;
                let r = (step / 2 - 1).clamp(2, 5);
                let reach = step / 2;
                pen.spot([(x - reach, y(point.high)), (x + reach, y(point.low))], in_words(point, language));
                pen.mark(point.mark, (x, y(point.hits as f64 / point.n as f64)), r, colour)?;
            }
        }
        let caption = said!(language, "rung: padding lines of the haystack", "梯级：草堆的填充行数");
        pen.text(&caption, ((left + full - right) / 2, height - 12), HPos::Center, pen.ink.dim)
    })
}

struct Key {
    platform: Platform,
    mark: Mark,
    text: String,
    x: i32,
    line: i32,
}

/// One entry per platform and arm, set in lines that are no wider than `room`.
fn legend(points: &[RecallPoint], room: i32, language: Language) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let (mut x, mut line) = (6, 0);
    for point in points {
        let text = fit(&format!("{} {}", platform(point.platform, language), point.arm), FONT_PX, 320.0);
        if keys.iter().any(|key| key.text == text && key.mark == point.mark) {
            continue;
        }
        let needed = 10 + width(&text, FONT_PX).ceil() as i32 + 18;
        if x > 6 && x + needed > room {
            (x, line) = (6, line + 1);
        }
        if line > 5 {
            break; // a hostile file with hundreds of arms; the table beside the chart names them all
        }
        keys.push(Key { platform: point.platform, mark: point.mark, text, x, line });
        x += needed;
    }
    keys
}

fn recall_in_words(points: &[RecallPoint], language: Language) -> String {
    let words: Vec<String> = points.iter().take(60).map(|point| in_words(point, language)).collect();
    said!(language, "{}. All figures stand in the table.", "{}。所有数字见表格。", words.join("; "))
}

fn in_words(point: &RecallPoint, language: Language) -> String {
    said!(
        language,
        "{}, rung {}, {} {}: {} of {}, interval {:.1} to {:.1} %",
        "{}，梯级 {}，{} {}：{} / {}，区间 {:.1} 到 {:.1} %",
        point.label,
        point.rung,
        platform(point.platform, language),
        point.arm,
        point.hits,
        point.n,
        100.0 * point.low,
        100.0 * point.high
    )
}

/// Recall delta of each file against its own oracle, with 95 % intervals and the band of the margin.
pub fn deltas(rows: &[DeltaRow], margin_pp: f64, language: Language) -> Result<Chart, ReportError> {
    let title = said!(
        language,
        "Recall delta against the oracle, percentage points, with 95 % intervals and the ±{margin_pp} pp band",
        "召回率与 oracle 之差，百分点，含 95 % 区间和 ±{margin_pp} 个百分点带"
    );
    let finite =
        |row: &&DeltaRow| row.delta_pp.is_finite() && row.low_pp.is_finite() && row.high_pp.is_finite();
    let rows: Vec<&DeltaRow> = rows.iter().filter(finite).collect();
    if rows.is_empty() {
        return nothing(
            &title,
            &said!(
                language,
                "Nothing to draw: no file has both arms.",
                "没有可画的内容：没有文件同时含两个实验臂。"
            ),
        );
    }
    let (left, right, top, pitch) = (240, 150, 14, 26);
    let bottom = top + pitch * rows.len() as i32;
    let height = bottom + 44;
    let (reach, tick) = reach(&rows);
    let centre = (left + WIDTH - right) / 2;
    let half = f64::from((WIDTH - right - left) / 2);
    let x = |pp: f64| centre + (pp.clamp(-reach, reach) / reach * half).round() as i32;
    chart((WIDTH, height), &title, &deltas_in_words(&rows, language), |pen| {
        pen.fill([(x(-margin_pp), top), (x(margin_pp), bottom)], pen.ink.band)?;
        let mut at = -reach;
        while at <= reach {
            pen.line([(x(at), bottom), (x(at), bottom + 4)], pen.ink.dim, 1)?;
            pen.text(&signed(at, 0), (x(at), bottom + 15), HPos::Center, pen.ink.dim)?;
            at += tick;
        }
        pen.dashes(x(0.0), top, bottom, pen.ink.dim)?;
        pen.line([(left, bottom), (WIDTH - right, bottom)], pen.ink.line, 1)?;
        for (i, row) in rows.iter().enumerate() {
            let y = top + pitch * i as i32 + pitch / 2;
            let colour = pen.ink.of(row.platform, Mark::Restored);
            let n = format!(" · n={}", row.n);
            let room = f64::from(left - 22) - width(&n, FONT_PX);
            let label = format!("{}{n}", fit(&row.label, FONT_PX, room));
            pen.text(&label, (left - 12, y), HPos::Right, pen.ink.text)?;
            pen.line([(x(row.low_pp), y), (x(row.high_pp), y)], colour, 2)?;
            for end in [row.low_pp, row.high_pp] {
                pen.line([(x(end), y - 4), (x(end), y + 4)], colour, 2)?;
            }
            pen.mark(Mark::Restored, (x(row.delta_pp), y), 5, colour)?;
            let figures = format!(
                "{} [{}, {}]",
                signed(row.delta_pp, 1),
                signed(row.low_pp, 1),
                signed(row.high_pp, 1)
            );
            pen.text(&figures, (WIDTH - right + 12, y), HPos::Left, pen.ink.dim)?;
            let above = y - pitch / 2;
            pen.spot([(left, above), (WIDTH - right, above + pitch)], delta_in_words(row, language));
        }
        let caption = said!(
            language,
            "percentage points; shaded: within {margin_pp}",
            "百分点；阴影：{margin_pp} 以内"
        );
        pen.text(&caption, (centre, height - 10), HPos::Center, pen.ink.dim)
    })
}

/// Half of the axis and the distance of its ticks: the first of a few round numbers that holds every interval.
fn reach(rows: &[&DeltaRow]) -> (f64, f64) {
    let widest = rows.iter().flat_map(|row| [row.low_pp.abs(), row.high_pp.abs(), row.delta_pp.abs()]);
    let widest = widest.fold(0.0, f64::max);
    let steps = [(10.0, 5.0), (20.0, 10.0), (30.0, 10.0), (50.0, 25.0)];
    steps.into_iter().find(|(reach, _)| widest <= *reach).unwrap_or((100.0, 50.0))
}

/// A difference with its sign, and a true minus.
pub(crate) fn signed(value: f64, places: usize) -> String {
    let text = format!("{:.places$}", value.abs());
    let zero = text.chars().all(|c| c == '0' || c == '.');
    match value {
        _ if zero => text,
        v if v < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

fn deltas_in_words(rows: &[&DeltaRow], language: Language) -> String {
    let words: Vec<String> = rows.iter().take(60).map(|row| delta_in_words(row, language)).collect();
    said!(language, "{}. All figures stand in the table.", "{}。所有数字见表格。", words.join("; "))
}

fn delta_in_words(row: &DeltaRow, language: Language) -> String {
    let [delta, low, high] = [row.delta_pp, row.low_pp, row.high_pp].map(|pp| signed(pp, 1));
    said!(
        language,
        "{}, n = {}: {delta} pp, interval {low} to {high}",
        "{}，n = {}：{delta} 个百分点，区间 {low} 到 {high}",
        tame(&row.label),
        row.n
    )
}

/// Figures that share an axis: of one kind, of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What they are.
    pub title: String,
    /// Figure by figure.
    pub bars: Vec<Bar>,
    /// A limit, and how it is written.
    pub limit: Option<(f64, String)>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is, in short.
    pub label: String,
    /// Where it ran: decides the colour.
    pub platform: Platform,
    /// What the arm is: the oracle is grey.
    pub mark: Mark,
    /// How long the bar is.
    pub value: f64,
    /// The figure with its unit.
    pub figure: String,
}

/// Bars in panels; each panel has an axis of its own, since nothing of one may be measured against another.
pub fn bars(title: &str, panels: &[Panel], language: Language) -> Result<Chart, ReportError> {
    let sound = |bar: &Bar| bar.value.is_finite() && bar.value >= 0.0;
    let panels: Vec<Panel> = panels
        .iter()
        .map(|panel| Panel {
            bars: panel.bars.iter().filter(|bar| sound(bar)).cloned().collect(),
            ..panel.clone()
        })
        .filter(|panel| !panel.bars.is_empty())
        .collect();
    if panels.is_empty() {
        return nothing(
            title,
            &said!(language, "Nothing to draw: no figure was recorded.", "没有可画的内容：没有记录数字。"),
        );
    }
    let (left, right, pitch, head) = (240, 110, 20, 30);
    let tall = |panel: &Panel| head + pitch * panel.bars.len() as i32 + 10;
    let height = panels.iter().map(tall).sum::<i32>() + 6;
    let room = f64::from(WIDTH - left - right);
    let words: Vec<String> = panels.iter().take(20).map(panel_in_words).collect();
    chart((WIDTH, height), title, &words.join(". "), |pen| {
        let mut top = 0;
        for panel in &panels {
            let longest = panel.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
            // A limit that is far off would leave nothing of the bars; it is named instead.
            let limit = panel.limit.as_ref();
            let near = limit.filter(|(limit, _)| *limit <= 4.0 * longest);
            let reach = near.map_or(longest, |(limit, _)| limit.max(longest));
            let x = |value: f64| left + (value / reach * room).round() as i32;
            let heading = fit(&panel.title, FONT_PX, f64::from(WIDTH - 180));
            pen.text(&heading, (12, top + 16), HPos::Left, pen.ink.text)?;
            if let Some((_, words)) = limit {
                let words = if near.is_some() { format!("┆ {words}") } else { format!("{words} →") };
                pen.text(&words, (WIDTH - 12, top + 16), HPos::Right, pen.ink.dim)?;
            }
            let bottom = top + tall(panel) - 8;
            for (i, bar) in panel.bars.iter().enumerate() {
                let y = top + head + pitch * i as i32 + pitch / 2 - 2;
                let label = fit(&bar.label, FONT_PX, f64::from(left - 24));
                pen.text(&label, (left - 10, y), HPos::Right, pen.ink.text)?;
                let end = x(bar.value).max(left + 1);
                pen.fill([(left, y - 6), (end, y + 6)], pen.ink.of(bar.platform, bar.mark))?;
                pen.text(&bar.figure, (end + 6, y), HPos::Left, pen.ink.dim)?;
                let whole = [(0, y - pitch / 2), (WIDTH, y + pitch / 2)];
                pen.spot(whole, format!("{}, {}: {}", panel.title, bar.label, bar.figure));
            }
            pen.line([(left, top + head - 6), (left, bottom)], pen.ink.dim, 1)?;
            if let Some((limit, _)) = near {
                pen.dashes(x(*limit), top + head - 6, bottom, pen.ink.text)?;
            }
            top += tall(panel);
        }
        Ok(())
    })
}

fn panel_in_words(panel: &Panel) -> String {
    let bars: Vec<String> =
        panel.bars.iter().take(60).map(|bar| format!("{} {}", tame(&bar.label), tame(&bar.figure))).collect();
    format!("{}: {}", tame(&panel.title), bars.join("; "))
}

/// One arm on one platform at one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatRow {
    /// Arm, platform and rung, in short.
    pub label: String,
    /// Hits and samples by depth, from the start of the prompt to its end.
    pub cells: Vec<(u64, u64)>,
}

/// Recall by needle depth and context length. Blue is recalled, orange is not; each square says its numbers.
pub fn heat(rows: &[HeatRow], language: Language) -> Result<Chart, ReportError> {
    let title =
        said!(language, "Recall by needle depth and context length", "按针的深度和上下文长度的召回率");
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0) as i32;
    if columns == 0 {
        return nothing(
            &title,
            &said!(
                language,
                "Nothing to draw: no needle evidence was given.",
                "没有可画的内容：没有大海捞针证据。"
            ),
        );
    }
    let (left, right, top, pitch) = (230, 10, 30, 24);
    let wide = (WIDTH - left - right) / columns;
    let height = top + pitch * rows.len() as i32 + 30;
    let words: Vec<String> = rows.iter().take(40).map(heat_in_words).collect();
    chart((WIDTH, height), &title, &words.join(". "), |pen| {
        pen.text(&said!(language, "start", "开头"), (left, 16), HPos::Left, pen.ink.dim)?;
        pen.text(&said!(language, "end", "结尾"), (left + wide * columns, 16), HPos::Right, pen.ink.dim)?;
        for (i, row) in rows.iter().enumerate() {
            let y = top + pitch * i as i32;
            let label = fit(&row.label, FONT_PX, f64::from(left - 22));
            pen.text(&label, (left - 10, y + pitch / 2), HPos::Right, pen.ink.text)?;
            for (k, (hits, n)) in row.cells.iter().enumerate() {
                let corner = (left + wide * k as i32 + 1, y + 1);
                let corners = [corner, (corner.0 + wide - 2, corner.1 + pitch - 2)];
                let centre = (corner.0 + wide / 2 - 1, y + pitch / 2);
                if *n == 0 {
                    pen.text("–", centre, HPos::Center, pen.ink.dim)?;
                    continue;
                }
                pen.fill(corners, between(MISSED, RECALLED, *hits as f64 / *n as f64))?;
                pen.text(&format!("{hits}/{n}"), centre, HPos::Center, BLACK)?;
                let depth = (100 * k / row.cells.len(), 100 * (k + 1) / row.cells.len());
                pen.spot(
                    corners,
                    said!(
                        language,
                        "{}, depth {} to {} %: {hits} of {n}",
                        "{}，深度 {} 到 {} %：{hits} / {n}",
                        row.label,
                        depth.0,
                        depth.1
                    ),
                );
            }
        }
        let caption = said!(language, "depth of the needle in the padding", "针在填充中的深度");
        pen.text(&caption, (left + wide * columns / 2, height - 12), HPos::Center, pen.ink.dim)
    })
}

/// The ends of the heat map's scale: Okabe and Ito's orange and sky blue, both light enough for black figures.
const MISSED: RGBColor = RGBColor(230, 159, 0);
const RECALLED: RGBColor = RGBColor(86, 180, 233);

/// A colour on the way from one to the other, by way of white.
fn between(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let (end, strength) = if share < 0.5 { (from, 1.0 - 2.0 * share) } else { (to, 2.0 * share - 1.0) };
    let mix = |channel: u8| (255.0 - strength * f64::from(255 - channel)).round() as u8;
    RGBColor(mix(end.0), mix(end.1), mix(end.2))
}

fn heat_in_words(row: &HeatRow) -> String {
    let cells: Vec<String> = row.cells.iter().map(|(hits, n)| format!("{hits}/{n}")).collect();
    format!("{}: {}", tame(&row.label), cells.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(label: &str, rung: &str, mark: Mark, hits: u64, n: u64) -> RecallPoint {
        let interval = evidence::stats::clopper_pearson(hits, n, 0.05);
        RecallPoint {
            label: label.to_owned(),
            rung: rung.to_owned(),
            platform: Platform::Cuda,
            arm: label.to_owned(),
            mark,
            hits,
            n,
            low: interval.low,
            high: interval.high,
        }
    }

    fn row(label: &str, delta_pp: f64, low_pp: f64, high_pp: f64) -> DeltaRow {
        DeltaRow { label: label.to_owned(), platform: Platform::Mac, delta_pp, low_pp, high_pp, n: 20 }
    }

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.map(|node| node.text().unwrap_or_default().trim().to_owned()).collect()
    }

    #[test]
    fn rungs_stand_in_the_order_of_the_ladder() {
        let points = [("1100", 3), ("70", 2), ("280", 1)]
            .map(|(rung, hits)| point("restored", rung, Mark::Restored, hits, 20));
        let texts = texts(&recall(&points, Language::En).unwrap().light);
        let at = |wanted: &str| texts.iter().position(|text| text == wanted).unwrap();
        assert!(at("70") < at("280") && at("280") < at("1100"));
    }

    #[test]
    fn an_interval_is_as_long_as_its_figures_say() {
        let svg =
            deltas(&[row("a", 0.0, -10.0, 10.0), row("b", 0.0, -5.0, 5.0)], 5.0, Language::En).unwrap().light;
        let document = roxmltree::Document::parse(&svg).unwrap();
        let number = |node: roxmltree::Node<'_, '_>, name: &str| -> i32 {
            node.attribute(name).unwrap().parse().unwrap()
        };
        let band = document.descendants().filter(|n| n.has_tag_name("rect")).nth(1).unwrap();
        let lines: Vec<i32> = document
            .descendants()
            .filter(|n| n.has_tag_name("polyline") && n.attribute("stroke-width") == Some("2"))
            .map(|n| {
                let ends = n.attribute("points").unwrap().split_whitespace();
                let xs: Vec<i32> = ends.map(|end| end.split(',').next().unwrap().parse().unwrap()).collect();
                (xs[1] - xs[0]).abs()
            })
            .filter(|length| *length > 0)
            .collect();
        let band = number(band, "width");
        assert!((lines[0] - 2 * band).abs() <= 2 && (lines[1] - band).abs() <= 2, "{lines:?}, band {band}");
    }

    #[test]
    fn labels_from_hostile_names_stay_text() {
        let name = "<script>alert(1)</script>\u{202e}\u{1}\" onload=\"x";
        let bar = Bar {
            label: name.to_owned(),
            platform: Platform::Mac,
            mark: Mark::Restored,
            value: 1.0,
            figure: name.to_owned(),
        };
        let panel = Panel { title: name.to_owned(), bars: vec![bar], limit: Some((2.0, name.to_owned())) };
        let charts = [
            recall(&[point(name, name, Mark::Oracle, 1, 2)], Language::En).unwrap(),
            deltas(&[row(name, 1.0, 0.0, 2.0)], 5.0, Language::En).unwrap(),
            bars(name, &[panel], Language::En).unwrap(),
            heat(&[HeatRow { label: name.to_owned(), cells: vec![(1, 2)] }], Language::En).unwrap(),
        ];
        for svg in charts.iter().flat_map(|chart| [&chart.light, &chart.dark]) {
            let document = roxmltree::Document::parse(svg).unwrap();
            assert!(!document.descendants().any(|node| node.has_tag_name("script")));
            assert!(!svg.contains("<script") && !svg.contains('\u{202e}'));
        }
        assert!(
            charts.iter().all(|chart| chart.spots.len() == 1 && !chart.spots[0].text.contains('\u{202e}'))
        );
    }

    #[test]
    fn nothing_is_said_in_words() {
        assert!(texts(&recall(&[], Language::En).unwrap().light)[0].starts_with("Nothing to draw"));
        assert!(
            texts(&deltas(&[row("a", f64::NAN, 0.0, 0.0)], 5.0, Language::En).unwrap().dark)[0]
                .starts_with("Nothing")
        );
    }

    #[test]
    fn long_labels_end_in_an_ellipsis() {
        let svg = deltas(&[row(&"很长的名字".repeat(20), 0.0, -1.0, 1.0)], 5.0, Language::En).unwrap().light;
        assert!(texts(&svg).iter().any(|text| text.ends_with("… · n=20")), "{:?}", texts(&svg));
    }

    #[test]
    fn a_limit_far_off_leaves_the_bars_their_length() {
        let panel = |limit: f64| {
            let bar = Bar {
                label: "peak".into(),
                platform: Platform::Cuda,
                mark: Mark::Restored,
                value: 10.0,
                figure: "10".into(),
            };
            Panel { title: "measured".into(), bars: vec![bar], limit: Some((limit, "limit".into())) }
        };
        let longest = |limit: f64| {
            let svg = bars("memory", &[panel(limit)], Language::En).unwrap().light;
            let document = roxmltree::Document::parse(&svg).unwrap();
            let widths = document.descendants().filter(|n| n.has_tag_name("rect")).skip(1);
            widths.map(|n| n.attribute("width").unwrap().parse::<i32>().unwrap()).max().unwrap()
        };
        assert_eq!(
            longest(20.0) * 2,
            longest(1_000.0),
            "half of a near limit, all of the axis where it is far"
        );
    }

    proptest! {
        #[test]
        fn any_label_gives_well_formed_xml(label in any::<String>(), rung in any::<String>(), hits in 0_u64..9, n in 0_u64..9) {
            for svg in [
                recall(&[point(&label, &rung, Mark::Control, hits.min(n), n)], Language::En).unwrap().dark,
                deltas(&[row(&label, 0.0, -1e300, 1e300)], 5.0, Language::En).unwrap().light,
            ] {
                let document = roxmltree::Document::parse(&svg);
                prop_assert!(document.is_ok(), "{:?}\n{svg}", document.err());
            }
        }
    }
}
