// Fetches what changes every two seconds, while the page is looked at, and puts it in place.
"use strict";
const live = document.querySelector("[data-live]"), told = document.getElementById("told"), pause = document.getElementById("pause");
const place = document.getElementById("live");
let paused = false;

async function look() {
  if (paused || document.hidden) return;
  try {
    const reply = await fetch(live.dataset.live, { credentials: "same-origin", redirect: "error" });
    if (reply.status === 403) return stop("This browser is no longer let in: open a new link.");
    if (!reply.ok) throw new Error();
    const made = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (paused) return;
    say(made.getElementById("told").textContent);
    put(made.getElementById("live"));
  } catch {
    say("The server does not answer; what is shown is from before.");
  }
}

function put(fresh) {
  const chosen = getSelection();
  for (const now of fresh ? place?.querySelectorAll("section") ?? [] : []) {
    const next = fresh.querySelector("#" + now.id);
    const read = now.contains(document.activeElement) || (String(chosen) && now.contains(chosen.anchorNode));
    if (!next || read || now.innerHTML === next.innerHTML) continue; // what somebody reads or stands in stays
    const open = new Set([...now.querySelectorAll("details[open]")].map(said));
    const shifts = [...now.querySelectorAll(".scroll")].map(item => item.scrollLeft);
    now.replaceChildren(...next.childNodes);
    for (const item of now.querySelectorAll("details")) item.open = open.has(said(item));
    [...now.querySelectorAll(".scroll")].forEach((item, i) => { item.scrollLeft = shifts[i] ?? 0; });
  }
}

function said(item) { return item.closest("tr")?.textContent; }

function say(text) { if (told.textContent !== text) told.textContent = text; }

function stop(text) {
  paused = true;
  pause.hidden = true;
  say(text);
}

if (live.dataset.live) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on with updates" : "Pause updates";
    look();
  });
  document.addEventListener("visibilitychange", look);
  setInterval(look, 2000);
}
