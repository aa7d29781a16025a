// What a browser adds to the desk; every page works without it.

// After a link of another site, the page brings the cookie only if it is loaded again from here
if (document.querySelector("[data-load-again]")) location.reload();

// A sign-in link has its token behind the #, where no log has it; nor does the history
for (const each of document.querySelectorAll("[data-fragment]")) {
  each.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
}

// A key can be seen while it is typed; password managers see a password again
const key = document.querySelector("input[type=password]");
if (key) {
  const show = document.createElement("button");
  const set = (shown) => {
    key.type = shown ? "text" : "password";
    show.textContent = shown ? "Hide" : "Show";
    show.setAttribute("aria-label", `${show.textContent} the key`);
  };
  show.type = "button";
  show.className = "within";
  set(false);
  show.addEventListener("click", () => {
    set(key.type === "password");
    key.focus();
  });
  key.form.addEventListener("submit", () => set(false));
  key.after(show);
}

// Instants in the reader's zone and hours
const now = new Date();
const date = (at) =>
  at.toLocaleDateString("en-US", {
    weekday: "long",
    month: "short",
    day: "numeric",
    year: at.getFullYear() === now.getFullYear() ? undefined : "numeric",
  });
const hourCycle = document.documentElement.dataset.hours;
const hour = hourCycle === "h23" ? "2-digit" : "numeric";
const time = (at, second) =>
  at.toLocaleTimeString("en-US", { hour, minute: "2-digit", second, hourCycle });

for (const each of document.querySelectorAll("time.instant")) {
  const at = new Date(each.dateTime);
  const day = at.toDateString() === now.toDateString() ? "" : `, ${date(at)}`;
  each.title = each.textContent; // in UTC
  const second = "seconds" in each.dataset ? "2-digit" : undefined;
  each.textContent = `${time(at, second)}${day} your time`;
}
for (const each of document.querySelectorAll("[data-hour]")) {
  const yours = each.tagName === "TIME" ? " your time" : "";
  each.textContent = time(new Date(each.dataset.hour)) + yours;
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
ask?.firstElementChild.addEventListener("click", ({ currentTarget }) => {
  const ticked = [...document.querySelectorAll(".cards :checked")].map((each) => each.value);
  if (ticked.length) currentTarget.search = new URLSearchParams({ select: ticked.join(".") });
});

// After a button the page goes on where it was: the result stands where the card stood, or, if
// there was none, it comes into view
document.addEventListener("submit", ({ submitter }) => {
  const card = submitter?.closest(".card, .result, .together");
  if (!card) return;
  const stays = !card.matches(".together");
  sessionStorage.setItem("top", stays ? card.getBoundingClientRect().top : "");
  sessionStorage.setItem("next", card.nextElementSibling?.getAttribute("aria-labelledby"));
});
addEventListener("load", () => {
  const [top, id] = ["top", "next"].map((name) => sessionStorage.getItem(name));
  const list = document.querySelector(".cards");
  const result = list?.querySelector(".result");
  sessionStorage.clear();
  if (top === null || !result) return;
  if (top === "") {
    result.querySelector("#result").focus({ preventScroll: true });
    result.scrollIntoView({ block: "center" });
    return;
  }
  const next = list.querySelector(`:scope > [aria-labelledby="${id}"]`);
  list.insertBefore(result, next);
  next?.setAttribute("tabindex", -1);
  next?.setAttribute("aria-describedby", "result");
  (next ?? result.querySelector("#result")).focus({ preventScroll: true });
  scrollBy(0, result.getBoundingClientRect().top - top);
});

// Many texts at once may be a slip
document.addEventListener("submit", (event) => {
  const most = event.submitter?.dataset.askBeyond;
  const chosen = document.querySelectorAll(".cards :checked").length;
  const question = `Approve ${chosen} texts? Those that are due will be sent in ten seconds.`;
  if (most && chosen > most && !confirm(question)) event.preventDefault();
});
