//! Hosts as a picture in SVG: boxes in boxes, every rank in a colour of its own.

use super::scene::{Cache, Core, Device, Scene, scenes};
use crate::report::View;
use std::fmt::Write;

const CORE: (u32, u32) = (46, 40);
const GAP: u32 = 6;
const PAD: u32 = 10;
const TITLE: u32 = 20;
const DEVICE: (u32, u32) = (212, 40);
/// About how wide a package may become, in pixels.
const WIDTH: u32 = 1180;

/// A finished part of the picture.
struct Block {
    width: u32,
    height: u32,
    body: String,
}

/// Draws every host that is described.
pub fn draw(view: &View<'_>) -> String {
    let blocks: Vec<Block> = scenes(view).iter().map(host).collect();
    let all = column(blocks, 24);
    let (width, height) = (all.width + 2 * PAD, all.height + 2 * PAD);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <defs><pattern id=\"no\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f1f1f1\"/>\
         <rect width=\"2\" height=\"6\" fill=\"#d0d0d0\"/></pattern></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <g transform=\"translate({PAD},{PAD})\">\n{}</g>\n</svg>\n",
        all.body
    )
}

fn host(scene: &Scene) -> Block {
    let mut parts: Vec<Block> = vec![text(&scene.title, 16, "#111111", true)];
    let mut packages = Vec::new();
    for package in &scene.packages {
        let mut inner = vec![flow(package.domains.iter().map(domain).collect(), WIDTH)];
        if !package.devices.is_empty() {
            inner.push(flow(package.devices.iter().map(device).collect(), inner[0].width.max(2 * DEVICE.0 + GAP)));
        }
        packages.push(framed(&package.title, column(inner, GAP), "#f7f7f5", "#8a8a82"));
    }
    parts.push(flow(packages, WIDTH));
    if !scene.elsewhere.is_empty() {
        let devices = flow(scene.elsewhere.iter().map(device).collect(), WIDTH);
        parts.push(framed("place unknown", devices, "#ffffff", "#c9c9c2"));
    }
    parts.push(legend(scene));
    if !scene.ranks.is_empty() {
        parts.push(rank_lines(scene));
    }
    column(parts, PAD)
}

fn domain(domain: &super::scene::Domain) -> Block {
    let mut inner = vec![flow(domain.caches.iter().map(cache).collect(), WIDTH / 2 - 4 * PAD)];
    if !domain.devices.is_empty() {
        let width = inner[0].width.max(2 * DEVICE.0 + GAP);
        inner.push(flow(domain.devices.iter().map(device).collect(), width));
    }
    framed(&domain.title, column(inner, PAD), "#eaf2f8", "#7d9bb3")
}

fn cache(cache: &Cache) -> Block {
    let columns = match cache.cores.len() {
        n @ 0..=4 => u32::try_from(n.max(1)).unwrap_or(4),
        5..=16 => 4,
        _ => 8,
    };
    let cores = flow(cache.cores.iter().map(core).collect(), columns * (CORE.0 + GAP));
    match &cache.title {
        Some(title) => framed(title, cores, "#fdf6e3", "#c9b98a"),
        None => cores,
    }
}

fn core(core: &Core) -> Block {
    let (width, height) = CORE;
    let (fill, stroke) = match core.ranks.as_slice() {
        _ if !core.allowed => ("url(#no)".to_string(), "#c4c4c4"),
        [] => ("#ffffff".to_string(), "#9a9a9a"),
        [rank] => (colour(*rank), "#555555"),
        _ => ("#dddddd".to_string(), "#555555"),
    };
    let label = match core.ranks.as_slice() {
        [] => String::new(),
        [rank] => rank.to_string(),
        [first, .., last] => format!("{first}…{last}"),
    };
    let grey = if core.allowed { "#555555" } else { "#a0a0a0" };
    let dash = if core.partly { " stroke-dasharray=\"3 2\"" } else { "" };
    let mut body = format!(
        "<rect width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"{dash}>\
         <title>core {}, hardware threads {}</title></rect>",
        core.number, core.threads
    );
    let _ = write!(
        body,
        "<text x=\"4\" y=\"11\" font-size=\"9\" fill=\"{grey}\">{}</text>\
         <text x=\"{}\" y=\"27\" font-size=\"15\" font-weight=\"bold\" text-anchor=\"middle\" fill=\"#111111\">{label}</text>\
         <text x=\"{}\" y=\"37\" font-size=\"8\" text-anchor=\"end\" fill=\"{grey}\">{}</text>",
        core.number,
        width / 2,
        width - 3,
        core.threads
    );
    Block { width, height, body }
}

fn device(device: &Device) -> Block {
    let (width, height) = DEVICE;
    let (fill, stroke) = match (device.unused.is_some(), device.gpu) {
        (true, _) => ("#f1f1f1", "#c4c4c4"),
        (false, true) => ("#e4f3e2", "#5d9156"),
        (false, false) => ("#efe6f7", "#8463a8"),
    };
    let kind = if device.gpu { "GPU" } else { "NIC" };
    let mut body = format!(
        "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
         <text x=\"8\" y=\"16\" font-weight=\"bold\" fill=\"#222222\">{kind} {}</text>\
         <text x=\"8\" y=\"32\" font-size=\"10\" fill=\"#555555\">{}</text>",
        escape(&shorten(&device.name, 18)),
        escape(&device.pci)
    );
    if let Some(why) = device.unused {
        let _ = write!(body, "<text x=\"{}\" y=\"32\" text-anchor=\"end\" fill=\"#8a8a8a\">{why}</text>", width - 8);
    }
    // A chip for each rank that has it, as far as there is room.
    let shown = if device.ranks.len() > 4 { 3 } else { device.ranks.len() };
    let mut x = width - 6;
    if device.ranks.len() > shown {
        x -= 28;
        let more = device.ranks.len() - shown;
        let _ = write!(body, "<text x=\"{}\" y=\"34\" text-anchor=\"middle\" font-size=\"10\">+{more}</text>", x + 14);
    }
    for rank in device.ranks.iter().take(shown).rev() {
        x -= 26;
        let _ = write!(body, "<g transform=\"translate({x},22)\">{}</g>", chip(*rank).body);
    }
    Block { width, height, body }
}

fn chip(rank: u32) -> Block {
    let body = format!(
        "<rect width=\"24\" height=\"15\" rx=\"4\" fill=\"{}\" stroke=\"#555555\"/>\
         <text x=\"12\" y=\"11\" font-size=\"10\" font-weight=\"bold\" text-anchor=\"middle\">{rank}</text>",
        colour(rank)
    );
    Block { width: 24, height: 15, body }
}

fn rank_line(rank: u32, words: &str) -> Block {
    let words = text(&format!("rank {rank}: {words}"), 12, "#222222", false);
    let body = format!("{}<g transform=\"translate(32,0)\">{}</g>", chip(rank).body, words.body);
    Block { width: words.width + 32, height: 16, body }
}

/// The lines of all ranks, in as many columns as fit when there are many.
fn rank_lines(scene: &Scene) -> Block {
    let lines: Vec<Block> = scene.ranks.iter().map(|(rank, words)| rank_line(*rank, words)).collect();
    let widest = lines.iter().map(|line| line.width).max().unwrap_or(1);
    let columns = if lines.len() > 12 { (WIDTH / (widest + 2 * PAD)).max(1) as usize } else { 1 };
    let per_column = lines.len().div_ceil(columns);
    let mut lines = lines.into_iter();
    let mut blocks = Vec::new();
    while blocks.len() < columns {
        let block = column(lines.by_ref().take(per_column).collect(), 4);
        blocks.push(Block { width: widest + PAD, ..block });
    }
    flow(blocks, u32::MAX)
}

fn legend(scene: &Scene) -> Block {
    let cores = || scene.packages.iter().flat_map(|p| &p.domains).flat_map(|d| &d.caches).flat_map(|c| &c.cores);
    let mut words = vec!["core: its number (top), the kernel's numbers of its hardware threads (bottom)"];
    if cores().any(|core| !core.ranks.is_empty()) {
        words.push("large: the rank bound to it");
    }
    if cores().any(|core| !core.allowed) {
        words.push("hatched: may not be used");
    }
    if cores().any(|core| core.partly) {
        words.push("dashed: only some of its hardware threads may be used");
    }
    text(&words.join("; "), 11, "#666666", false)
}

/// A colour for each rank: neighbours differ most.
fn colour(rank: u32) -> String {
    format!("hsl({},{}%,{}%)", (u64::from(rank) * 137) % 360, 62 + (rank / 7 % 3) * 8, 80 - (rank / 5 % 3) * 4)
}

fn text(words: &str, size: u32, fill: &str, bold: bool) -> Block {
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let body =
        format!("<text x=\"0\" y=\"{size}\" font-size=\"{size}\"{weight} fill=\"{fill}\">{}</text>", escape(words));
    // Letters of these faces are a little wider than half their height.
    let letters = u32::try_from(words.chars().count()).unwrap_or(0);
    Block { width: letters * size * 58 / 100, height: size + 4, body }
}

fn framed(title: &str, inner: Block, fill: &str, stroke: &str) -> Block {
    let heading = text(title, 12, "#333333", true);
    let width = inner.width.max(heading.width) + 2 * PAD;
    let height = inner.height + TITLE + 2 * PAD - 2;
    let body = format!(
        "<rect width=\"{width}\" height=\"{height}\" rx=\"5\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
         <g transform=\"translate({PAD},6)\">{}</g><g transform=\"translate({PAD},{})\">{}</g>\n",
        heading.body,
        TITLE + PAD - 2,
        inner.body
    );
    Block { width, height, body }
}

/// One below the other.
fn column(blocks: Vec<Block>, gap: u32) -> Block {
    let mut all = Block { width: 0, height: 0, body: String::new() };
    for block in blocks {
        if all.height > 0 {
            all.height += gap;
        }
        let _ = write!(all.body, "<g transform=\"translate(0,{})\">{}</g>", all.height, block.body);
        all.height += block.height;
        all.width = all.width.max(block.width);
    }
    all
}

/// Side by side, in lines of at most this width.
fn flow(blocks: Vec<Block>, width: u32) -> Block {
    let mut all = Block { width: 0, height: 0, body: String::new() };
    let (mut x, mut y, mut line) = (0, 0, 0);
    for block in blocks {
        if x > 0 && x + block.width > width {
            (x, y) = (0, y + line + GAP);
            line = 0;
        }
        let _ = write!(all.body, "<g transform=\"translate({x},{y})\">{}</g>", block.body);
        all.width = all.width.max(x + block.width);
        line = line.max(block.height);
        x += block.width + GAP;
    }
    all.height = y + line;
    all
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
