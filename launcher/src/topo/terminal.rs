//! Hosts as a drawing of characters: a cell for each core.

use super::scene::{Cache, Core, Device, Scene, scenes};
use crate::report::View;

/// Cores side by side.
const PER_LINE: usize = 16;

/// Draws every host that is described.
pub fn draw(view: &View<'_>) -> String {
    let scenes = scenes(view);
    if scenes.is_empty() {
        return "no host was described\n".to_string();
    }
    scenes.iter().map(host).collect::<Vec<_>>().join("\n")
}

fn host(scene: &Scene) -> String {
    let mut packages = Vec::new();
    for package in &scene.packages {
        let mut lines = Vec::new();
        for domain in &package.domains {
            let mut inner: Vec<String> = domain.caches.iter().flat_map(cache).collect();
            inner.extend(domain.devices.iter().map(device));
            lines.extend(frame(&domain.title, &inner));
        }
        lines.extend(package.devices.iter().map(device));
        packages.push((package.title.as_str(), lines));
    }
    let mut text = format!("{}\n", scene.title);
    for (title, lines) in &packages {
        for line in frame(title, lines) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    for one in &scene.elsewhere {
        text.push_str(&format!("  {} (place unknown)\n", device(one)));
    }
    let cores = || scene.packages.iter().flat_map(|p| &p.domains).flat_map(|d| &d.caches).flat_map(|c| &c.cores);
    let mut legend = Vec::new();
    if cores().any(|core| core.ranks.len() == 1) {
        legend.push("a number: the rank on that core");
    }
    if cores().any(|core| core.ranks.len() > 1) {
        legend.push("+: several ranks");
    }
    legend.push("·: free");
    if cores().any(|core| !core.allowed) {
        legend.push("×: may not be used");
    }
    text.push_str(&format!("  {}\n", legend.join("   ")));
    for (rank, words) in &scene.ranks {
        text.push_str(&format!("  rank {rank}: {words}\n"));
    }
    text
}

/// Lines in a box with a title; all boxes of the same content width are equally wide.
fn frame(title: &str, lines: &[String]) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let width = lines.iter().map(|line| length(line)).chain([length(title) + 2]).max().unwrap_or(0);
    let mut boxed = vec![format!("┌ {title} {}┐", "─".repeat(width - length(title)))];
    boxed.extend(lines.iter().map(|line| format!("│ {line}{} │", " ".repeat(width - length(line)))));
    boxed.push(format!("└{}┘", "─".repeat(width + 2)));
    boxed
}

fn cache(cache: &Cache) -> Vec<String> {
    let title = cache.title.as_deref().unwrap_or("");
    let line = |(at, cores): (usize, &[Core])| {
        let cells: Vec<String> = cores.iter().map(cell).collect();
        let numbers = format!("cores {}-{}", cores[0].number, cores[cores.len() - 1].number);
        format!("{:<11}{numbers:<14}{}", if at == 0 { title } else { "" }, cells.join(""))
    };
    cache.cores.chunks(PER_LINE).enumerate().map(line).collect()
}

fn cell(core: &Core) -> String {
    match core.ranks.as_slice() {
        _ if !core.allowed => "   ×".to_string(),
        [] => "   ·".to_string(),
        [rank] => format!("{rank:>4}"),
        _ => "   +".to_string(),
    }
}

fn device(device: &Device) -> String {
    let kind = if device.gpu { "GPU" } else { "NIC" };
    let users = match (&device.unused, device.ranks.as_slice()) {
        (Some(why), _) => format!("  [{why}]"),
        (None, []) => String::new(),
        (None, [rank]) => format!("  rank {rank}"),
        (None, ranks) => format!("  ranks {}", spmd::bootstrap::node::cpu_list(ranks)),
    };
    format!("{kind} {}  {}{users}", device.name, device.pci)
}
