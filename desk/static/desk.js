// What a browser adds to the desk; every page works without it.

// Instants in the reader's zone
const now = new Date();
const date = (at) =>
  at.toLocaleDateString("en-US", {
    weekday: "long",
    month: "short",
    day: "numeric",
    year: at.getFullYear() === now.getFullYear() ? undefined : "numeric",
  });
const time = (at) =>
  at.toLocaleTimeString("en-US", { hour: "numeric", minute: "2-digit", timeZoneName: "short" });
const hour = (at) =>
  at.toLocaleTimeString("en-US", {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZoneName: "short",
  });

for (const each of document.querySelectorAll("time.instant")) {
  const at = new Date(each.dateTime);
  each.title = each.textContent; // in UTC
  each.textContent = `${time(at)}, ${date(at)}`;
}
for (const each of document.querySelectorAll("[data-hour]")) {
  const local = hour(new Date(each.dataset.hour));
  const write = (_, zone) => (zone ? local : local.slice(0, 5));
  each.textContent = each.textContent.replace(/\d\d:00( UTC)?/, write);
}

// A text that is shorter than it was estimated needs no folding
for (const text of document.querySelectorAll(".text.long")) {
  const { scrollHeight, clientHeight } = text.firstElementChild;
  if (scrollHeight > clientHeight) continue;
  text.classList.remove("long");
  text.nextElementSibling.hidden = true;
}

// "Undo" counts down, and goes when it would be too late
const seconds = (count) => `for ${count} second${count === 1 ? "" : "s"}`;
for (const each of document.querySelectorAll("[data-left]")) {
  const ends = Date.now() + each.dataset.left * 1000;
  const timer = setInterval(() => {
    const left = Math.ceil((ends - Date.now()) / 1000);
    each.textContent = seconds(left);
    if (left > 0) return;
    clearInterval(timer);
    each.parentElement.replaceChildren("Too late to undo");
  }, 1000);
}

// New texts are told of while somebody looks
const { title } = document;
const ask = document.querySelector("[data-ask]");
const tell = (words, count) => {
  if (ask.firstElementChild.textContent === words) return;
  ask.firstElementChild.textContent = words;
  document.title = count ? `(${count}) ${title}` : title;
};
const look = async () => {
  if (document.hidden) return;
  const answer = await fetch(ask.dataset.ask).catch(() => null);
  if (answer?.redirected) {
    clearInterval(looking);
    document.removeEventListener("visibilitychange", look);
    tell("You are signed out");
  } else if (answer?.ok) {
    const { texts } = await answer.json();
    tell(texts ? `${texts} new text${texts === 1 ? "" : "s"}` : "", texts);
  }
};
const looking = ask && setInterval(look, 15_000);
if (ask) document.addEventListener("visibilitychange", look);

// After a decision the page stays where it was: the result stands where the card stood
document.addEventListener("submit", ({ submitter }) => {
  const top = submitter?.closest(".card, .result")?.getBoundingClientRect().top;
  if (top >= 0) sessionStorage.setItem("top", top);
});
addEventListener("load", () => {
  const top = sessionStorage.getItem("top");
  const result = document.querySelector("#result")?.parentElement;
  sessionStorage.removeItem("top");
  if (top === null || !result) return;
  document.querySelector("#next")?.focus({ preventScroll: true });
  scrollBy(0, result.getBoundingClientRect().top - top);
});

// Many texts at once may be a slip
document.addEventListener("submit", (event) => {
  const most = event.submitter?.dataset.askBeyond;
  const chosen = document.querySelectorAll(".cards :checked").length;
  const question = `Approve ${chosen} texts? Those that are due leave in ten seconds.`;
  if (most && chosen > most && !confirm(question)) event.preventDefault();
});
