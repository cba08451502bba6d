//! Two charts as SVG: recall per rung, and recall delta against the oracle.
//!
//! Both are laid out in pixels of their own view box, so that every label has a place of a known size: nothing overlaps,
//! whatever the labels are. The figure scales between about 460 and 800 px.

use crate::ReportError;
use crate::text::{fit, tame, width, xml};
use evidence::Platform;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const FONTS: &str = "-apple-system, Inter, Segoe UI, sans-serif";
const FONT_PX: f64 = 12.0;
const WIDTH: i32 = 600;

/// Light or dark surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
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
}

fn failed(error: impl std::fmt::Display) -> ReportError {
    ReportError::Chart(error.to_string())
}

impl Pen<'_> {
    fn text(&self, text: &str, at: (i32, i32), side: HPos, colour: RGBColor) -> Result<(), ReportError> {
        // plotters divides the size by 1.24 on the way to SVG.
        let style = TextStyle::from((FONTS, FONT_PX * 1.24)).color(&colour).pos(Pos::new(side, VPos::Center));
        self.area.draw_text(text, &style, at).map_err(failed)
    }

    fn line(&self, points: [(i32, i32); 2], colour: RGBColor, px: u32) -> Result<(), ReportError> {
        self.area.draw(&PathElement::new(points.to_vec(), colour.stroke_width(px))).map_err(failed)
    }

    fn dashes(&self, x: i32, from: i32, to: i32, colour: RGBColor) -> Result<(), ReportError> {
        (from..to).step_by(6).try_for_each(|y| self.line([(x, y), (x, (y + 3).min(to))], colour, 1))
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
            Mark::Control => {
                self.area.draw(&Circle::new((x, y), r, self.ink.ground.filled())).map_err(failed)?;
                self.area.draw(&Circle::new((x, y), r, colour.stroke_width(2))).map_err(failed)
            }
        }
    }
}

/// Draws on a surface of this size and gives it its text alternative.
fn svg(
    size: (i32, i32),
    palette: Palette,
    title: &str,
    description: &str,
    draw: impl FnOnce(&Pen<'_>) -> Result<(), ReportError>,
) -> Result<String, ReportError> {
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, (size.0 as u32, size.1 as u32)).into_drawing_area();
        let pen = Pen { area, ink: palette.ink() };
        draw(&pen)?;
        pen.area.present().map_err(failed)?;
    }
    let body = out
        .split_once("<svg")
        .and_then(|(_, rest)| rest.split_once('>'))
        .map(|(_, body)| body)
        .ok_or_else(|| failed("the drawing came out empty"))?;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" \
         aria-label=\"{title}\" style=\"width:100%;height:auto;min-width:{min}px;max-width:{max}px\">\
         <title>{title}</title><desc>{description}</desc>{body}",
        w = size.0,
        h = size.1,
        min = size.0 * 23 / 30,
        max = size.0 * 4 / 3,
        title = xml(title),
        description = xml(description),
    ))
}

fn nothing(palette: Palette, title: &str, reason: &str) -> Result<String, ReportError> {
    svg((WIDTH, 96), palette, title, reason, |pen| {
        pen.fill([(0, 0), (WIDTH, 96)], pen.ink.ground)?;
        pen.text(reason, (WIDTH / 2, 48), HPos::Center, pen.ink.dim)
    })
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
pub fn recall(points: &[RecallPoint], palette: Palette) -> Result<String, ReportError> {
    let title = "Recall per rung, with exact 95 % intervals";
    let rungs = rungs(points);
    if rungs.is_empty() {
        return nothing(palette, title, "Nothing to draw: no arm with samples was given.");
    }
    let columns: Vec<Vec<&RecallPoint>> = rungs
        .iter()
        .map(|rung| points.iter().filter(|point| point.rung == *rung && point.n > 0).collect())
        .collect();
    let busiest = columns.iter().map(Vec::len).max().unwrap_or(1).max(1) as i32;
    let (left, right, bottom) = (44, 14, 46);
    let slot = ((WIDTH - left - right) / rungs.len() as i32).max((busiest * 7 + 12).max(56));
    let full = left + right + slot * rungs.len() as i32;
    let keys = legend(points, full - left - right);
    let top = 18 + 20 * keys.last().map_or(0, |key| key.line + 1);
    let (plot, height) = (210, top + 210 + bottom);
    let y = |fraction: f64| top + plot - (fraction.clamp(0.0, 1.0) * f64::from(plot)).round() as i32;
    let description = recall_in_words(points);
    svg((full, height), palette, title, &description, |pen| {
        pen.fill([(0, 0), (full, height)], pen.ink.ground)?;
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
                pen.mark(point.mark, (x, y(point.hits as f64 / point.n as f64)), r, colour)?;
            }
        }
        let caption = "rung: padding lines of the haystack";
        pen.text(caption, ((left + full - right) / 2, height - 12), HPos::Center, pen.ink.dim)
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
fn legend(points: &[RecallPoint], room: i32) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let (mut x, mut line) = (6, 0);
    for point in points {
        let text = fit(&format!("{} {}", point.platform.label(), point.arm), FONT_PX, 320.0);
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

fn recall_in_words(points: &[RecallPoint]) -> String {
    let words: Vec<String> = points
        .iter()
        .take(60)
        .map(|p| {
            format!(
                "{}, rung {}, {} {}: {} of {}, interval {:.1} to {:.1} %",
                p.label,
                p.rung,
                p.platform.label(),
                p.arm,
                p.hits,
                p.n,
                100.0 * p.low,
                100.0 * p.high
            )
        })
        .collect();
    format!("{}. All figures stand in the table.", words.join("; "))
}

/// Recall delta of each file against its own oracle, with 95 % intervals and the band of the margin.
pub fn deltas(rows: &[DeltaRow], margin_pp: f64, palette: Palette) -> Result<String, ReportError> {
    let title = format!(
        "Recall delta against the oracle, percentage points, with 95 % intervals and the ±{margin_pp} pp band"
    );
    let finite =
        |row: &&DeltaRow| row.delta_pp.is_finite() && row.low_pp.is_finite() && row.high_pp.is_finite();
    let rows: Vec<&DeltaRow> = rows.iter().filter(finite).collect();
    if rows.is_empty() {
        return nothing(palette, &title, "Nothing to draw: no file has both arms.");
    }
    let (left, right, top, pitch) = (240, 150, 14, 26);
    let bottom = top + pitch * rows.len() as i32;
    let height = bottom + 44;
    let (reach, tick) = reach(&rows);
    let centre = (left + WIDTH - right) / 2;
    let half = f64::from((WIDTH - right - left) / 2);
    let x = |pp: f64| centre + (pp.clamp(-reach, reach) / reach * half).round() as i32;
    svg((WIDTH, height), palette, &title, &deltas_in_words(&rows), |pen| {
        pen.fill([(0, 0), (WIDTH, height)], pen.ink.ground)?;
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
        }
        let caption = "percentage points; shaded: within 5";
        pen.text(caption, (centre, height - 10), HPos::Center, pen.ink.dim)
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

fn deltas_in_words(rows: &[&DeltaRow]) -> String {
    let words: Vec<String> = rows
        .iter()
        .take(60)
        .map(|row| {
            format!(
                "{}, n = {}: {}, interval {} to {}",
                tame(&row.label),
                row.n,
                signed(row.delta_pp, 1),
                signed(row.low_pp, 1),
                signed(row.high_pp, 1)
            )
        })
        .collect();
    format!("{}. All figures stand in the table.", words.join("; "))
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
        let texts = texts(&recall(&points, Palette::Light).unwrap());
        let at = |wanted: &str| texts.iter().position(|text| text == wanted).unwrap();
        assert!(at("70") < at("280") && at("280") < at("1100"));
    }

    #[test]
    fn an_interval_is_as_long_as_its_figures_say() {
        let svg =
            deltas(&[row("a", 0.0, -10.0, 10.0), row("b", 0.0, -5.0, 5.0)], 5.0, Palette::Light).unwrap();
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
        for palette in [Palette::Light, Palette::Dark] {
            let charts = [
                recall(&[point(name, name, Mark::Oracle, 1, 2)], palette).unwrap(),
                deltas(&[row(name, 1.0, 0.0, 2.0)], 5.0, palette).unwrap(),
            ];
            for svg in charts {
                let document = roxmltree::Document::parse(&svg).unwrap();
                assert!(!document.descendants().any(|node| node.has_tag_name("script")));
                assert!(!svg.contains("<script") && !svg.contains('\u{202e}'));
            }
        }
    }

    #[test]
    fn nothing_is_said_in_words() {
        assert!(texts(&recall(&[], Palette::Light).unwrap())[0].starts_with("Nothing to draw"));
        assert!(
            texts(&deltas(&[row("a", f64::NAN, 0.0, 0.0)], 5.0, Palette::Dark).unwrap())[0]
                .starts_with("Nothing")
        );
    }

    #[test]
    fn long_labels_end_in_an_ellipsis() {
        let svg = deltas(&[row(&"很长的名字".repeat(20), 0.0, -1.0, 1.0)], 5.0, Palette::Light).unwrap();
        assert!(texts(&svg).iter().any(|text| text.ends_with("… · n=20")), "{:?}", texts(&svg));
    }

    proptest! {
        #[test]
        fn any_label_gives_well_formed_xml(label in any::<String>(), rung in any::<String>(), hits in 0_u64..9, n in 0_u64..9) {
            for svg in [
                recall(&[point(&label, &rung, Mark::Control, hits.min(n), n)], Palette::Dark).unwrap(),
                deltas(&[row(&label, 0.0, -1e300, 1e300)], 5.0, Palette::Light).unwrap(),
            ] {
                let document = roxmltree::Document::parse(&svg);
                prop_assert!(document.is_ok(), "{:?}\n{svg}", document.err());
            }
        }
    }
}
