setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(0.8 * interval) });
    if (!answer.ok) throw new Error(answer.status);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.body.replaceChildren(...next.body.childNodes);
    document.body.className = "";
  } catch {
    document.body.className = "stale";
  }
}, interval);
