// Where the time of each GPU went: compute, exposed communication and copies, idle by cause.

const GPU_PARTS = [
  [
    "compute_ns",
    "compute",
    "--class-compute",
    "time with at least one kernel running that is not communication",
  ],
  [
    "comm_exposed_ns",
    "exposed communication",
    "--class-communication",
    "time with communication but no compute running",
  ],
  [
    "copy_exposed_ns",
    "exposed copies",
    "--class-copy",
    "time with a copy or memset, but neither compute nor communication running",
  ],
];

/** A bar per GPU, and a table with its figures. */
function showGpuTime(data, report) {
  const { devices, of_steps: ofSteps } = report.judged;
  if (!devices.length) return;
  const parts = gpuParts(data, devices);
  const caption = ofSteps
    ? `A typical step: the mean of the judged steps, as the verdict has it`
    : "The whole window, as no step is known";
  document.getElementById("gpus").classList.toggle("many", devices.length > 2);
  fill(
    "gpus",
    titled("GPU time", caption),
    make(
      "div",
      { class: "bars", "aria-hidden": "true" },
      devices.map((device, at) => gpuBar(device, parts, deviceName(devices, at))),
    ),
    gpuTable(report, devices, parts),
  );
}

/** The parts that any GPU has, with their pointers below a device; causes by size. */
function gpuParts(data, devices) {
  const busy = GPU_PARTS.map(([key, label, colour, meaning]) => ({
    path: [key],
    label,
    colour,
    meaning,
  }));
  const causes = Object.entries(data.causes).map(([name, [label, meaning]]) => ({
    path: ["causes", name],
    label,
    colour: `--cause-${name}`,
    meaning: meaning,
    idle: true,
  }));
  const total = (part) => devices.reduce((sum, device) => sum + partOf(device, part), 0);
  causes.sort((one, other) => total(other) - total(one));
  return [...busy, ...causes].filter(total);
}

function partOf(device, { path }) {
  return path.reduce((value, key) => value[key], device);
}

function deviceName(devices, at) {
  const several = new Set(devices.map((each) => each.report)).size > 1;
  return several ? `${devices[at].report} GPU ${devices[at].device}` : `GPU ${devices[at].device}`;
}

function gpuBar(device, parts, name) {
  const bar = make("div", { class: "stack" });
  for (const part of parts) {
    const ns = partOf(device, part);
    if (!ns) continue;
    const label = `${part.label} ${shareOf(ns, device.window_ns)}`;
    const piece = make("i", { class: part.idle ? "idle" : null }, make("b", {}, label));
    piece.style.flexGrow = ns / device.window_ns;
    paint(piece, part.colour);
    piece.title = part.idle ? `idle: ${label}` : label;
    bar.append(piece);
  }
  return make("div", { class: "bar" }, make("span", {}, named(name, 40)), bar);
}

function gpuTable(report, devices, parts) {
  const cells = (path) => devices.map((device, at) => gpuCell(report, device, at, path));
  const heads = devices.map((_, at) => figureHead(named(deviceName(devices, at), 30)));
  const rows = parts.map((part) => {
    const meaning = make("td", { class: "meaning" }, part.meaning);
    return plainRow([rowHead(swatch(part), part.label), ...cells(part.path), meaning], part.idle && "idle");
  });
  const firstIdle = parts.findIndex((part) => part.idle);
  const idle = plainRow([rowHead("idle, of which"), ...cells(["idle_ns"])], "sum");
  if (firstIdle >= 0) rows.splice(firstIdle, 0, idle);
  const whole = rowHead(report.judged.of_steps ? "step" : "window");
  return plainTable(
    "GPU time in figures",
    ["part", ...heads, { head: "what it is", kind: "meaning" }],
    [plainRow([whole, ...cells(["window_ns"])], "sum"), ...rows],
    "parts",
  );
}

/** A part of a GPU's time, and its share. */
function gpuCell(report, device, at, path) {
  if (!partOf(device, { path })) return make("td");
  const base = `/judged/devices/${at}`;
  const pointer = [base, ...path].join("/");
  const time = figure(report, pointer, "duration", { per: device.steps });
  return figureCell(time, " ", shareFigure(report, pointer, `${base}/window_ns`));
}

function swatch({ colour, idle }) {
  const made = make("i", { class: idle ? "swatch idle" : "swatch", "aria-hidden": "true" });
  paint(made, colour);
  return made;
}
