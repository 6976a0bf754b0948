// Numbers in words, and elements to put them in.

export const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

export const whole = (n) => n.toLocaleString("en-US");
export const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;

/** A share as a percentage that is 0% or 100% only if the share is exactly 0 or 1. */
export function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1%";
  if (share > 0.999 && share < 1) return ">99.9%";
  return `${(100 * share).toFixed(share === 0 || share === 1 ? 0 : 1)}%`;
}

/** A decimal that is never below the value. */
export function roundUp(value, digits) {
  const scale = 10 ** digits;
  let scaled = Math.ceil(value * scale);
  while (scaled / scale < value) scaled += 1;
  return (scaled / scale).toFixed(digits);
}

/** All its digits, as in 2.5 × 10⁻⁶. */
export function power(value) {
  const [digits, exponent] = value.toExponential().split("e");
  const raised = exponent.replace("+", "").replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  return digits === "1" ? `10${raised}` : `${digits} × 10${raised}`;
}

const formats = {};
function formatted(time, options) {
  const name = JSON.stringify(options);
  formats[name] ??= new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options });
  return formats[name].format(time);
}
const two = "2-digit";
export const clock = (time) => formatted(time, { hour: two, minute: two, second: two });
export const minutes = (time) => formatted(time, { hour: two, minute: two });
export const day = (time) => formatted(time, { day: "numeric", month: "short" });
export const moment = (time) => `${day(time)}, ${clock(time)}`;

export function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Write text only if it changed: then a selection survives, and a screen reader reads out only what is new. */
export function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children); // strings become text
  return element;
}
export const tag = (name, attributes, ...children) => made(document.createElement(name), attributes, children);
export const shape = (name, attributes, ...children) => made(document.createElementNS(SVG, name), attributes, children);

export function row(head, ...cells) {
  return tag("tr", {}, tag("th", { scope: "row" }, ...head), ...cells.map((cell) => tag("td", {}, cell)));
}

export function meter(share) {
  return shape(
    "svg",
    { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("rect", { class: "ground", width: 100, height: 4 }),
    shape("rect", { class: "fill", width: (100 * Math.min(share, 1)).toFixed(2), height: 4 }),
  );
}

const drawn = {};
/** Whether a part has to be drawn again. */
export function changed(part, value) {
  const text = JSON.stringify(value);
  if (drawn[part] === text) return false;
  drawn[part] = text;
  return true;
}
