// What the three drawings share: a canvas with the screen's resolution, drawing once per frame, moving with the pointer, and the tip beside
// the pointer.

const byId = (id) => document.getElementById(id);

// The colours of page.css, which knows whether the screen is dark.
const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "paper", "faint", "grid", "unmatched", "edge", "choice", "path", "letters"]) theme[name] = style.getPropertyValue(`--${name}`).trim();
}
readTheme();

// `draw(context, width, height)` is called at the next frame after redraw(), however often that is called.
function drawing(canvas, draw) {
  let asked = false, drawn = "";
  const sizeOf = () => `${canvas.clientWidth} ${canvas.clientHeight} ${window.devicePixelRatio}`;
  const now = () => {
    asked = false;
    drawn = sizeOf();
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    draw(context, width, height);
  };
  const redraw = () => {
    if (!asked) requestAnimationFrame(now);
    asked = true;
  };
  new ResizeObserver(() => sizeOf() !== drawn && redraw()).observe(canvas);  // also called at the start
  return { redraw, now };
}

// Pointer and wheel, in pixels of the canvas. A click is a press that did not move.
function follow(canvas, { move, drag, click, wheel, leave }) {
  let pressed = null;
  const place = (event) => ({ x: event.offsetX, y: event.offsetY });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pressed = { ...place(event), moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    const { x, y } = place(event);
    if (!pressed) return move(x, y, event);
    if (Math.abs(x - pressed.x) + Math.abs(y - pressed.y) > 3) pressed.moved = true;
    if (!pressed.moved) return;
    drag(x - pressed.x, y - pressed.y, x, y);
    pressed.x = x;
    pressed.y = y;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (pressed && !pressed.moved) click(event.offsetX, event.offsetY);
    pressed = null;
  });
  canvas.addEventListener("pointerleave", () => leave());
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const turn = event.deltaY || event.deltaX;  // Shift makes the browser swap the two
      wheel(Math.exp(Math.max(-1, Math.min(1, turn / 300))), event.offsetX, event.offsetY, event.shiftKey);
    },
    { passive: false },
  );
}

function showTip(text, event) {
  const tip = byId("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const right = event.clientX + 14 + tip.offsetWidth > window.innerWidth, low = event.clientY + 14 + tip.offsetHeight > window.innerHeight;
  tip.style.left = `${Math.max(0, right ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14)}px`;
  tip.style.top = `${Math.max(0, low ? event.clientY - 14 - tip.offsetHeight : event.clientY + 14)}px`;
}

// As much of a name as `width` pixels hold. In names like /features/features.3/squeeze/Conv the last parts say most, except the kind of
// node at the end. So this name becomes squeeze, or with more room features.3/squeeze.
function fitting(text, width) {
  const letters = Math.floor(width / 6.4);
  if (text.length <= letters) return text;
  if (letters < 3) return "";
  const parts = text.replace(/_output_\d+$/, "").split("/").filter(Boolean);
  if (parts.length > 1 && /^[A-Za-z]+$/.test(parts[parts.length - 1])) parts.pop();
  let found = "";
  for (let i = parts.length; i-- > 0; ) {
    const longer = parts.slice(i).join("/");
    if (longer.length > letters) break;
    found = longer;
  }
  const last = parts.length > 0 ? parts[parts.length - 1] : text;
  return found || "\u2026" + last.slice(last.length - letters + 1);
}

// The part of the time that the lanes and the arena show.
const view = { begin: 0, end: wholeSpan };
const kLeft = 52, kAxis = 18;  // pixels: names of lanes, and the axis of time
const xOf = (time, width) => kLeft + ((time - view.begin) / (view.end - view.begin)) * (width - kLeft);
const timeOf = (x, width) => view.begin + ((x - kLeft) / (width - kLeft)) * (view.end - view.begin);

function showTime(begin, end) {
  const length = Math.max(20, Math.min(end - begin, wholeSpan * 1.1));
  view.begin = Math.max(-0.05 * wholeSpan, Math.min(begin, wholeSpan * 1.05 - length));
  view.end = view.begin + length;
}
function zoomTime(factor, x, width) {
  const at = timeOf(x, width);
  showTime(at - (at - view.begin) * factor, at + (view.end - at) * factor);
}
function moveTime(pixels, width) {
  const by = (-pixels / (width - kLeft)) * (view.end - view.begin);
  showTime(view.begin + by, view.end + by);
}

function drawAxis(context, width, bottom) {
  const target = (view.end - view.begin) / Math.max(2, (width - kLeft) / 110);
  const power = 10 ** Math.floor(Math.log10(target));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= target);
  context.fillStyle = theme.faint;
  context.strokeStyle = theme.grid;
  context.lineWidth = 1;
  context.textAlign = "left";
  for (let time = Math.ceil(view.begin / step) * step; time <= view.end; time += step) {
    const x = Math.round(xOf(time, width)) + 0.5;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, bottom);
    context.stroke();
    const digits = Math.max(0, 3 - Math.floor(Math.log10(step)));
    const label = `${(time / 1000).toFixed(Math.min(3, digits))} us`;
    if (x + 2 + context.measureText(label).width <= width) context.fillText(label, x + 2, bottom + 12);
  }
}
