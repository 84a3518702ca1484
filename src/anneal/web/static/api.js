// What all views share: the server, the annotator, and the state of the campaign.

const bus = new EventTarget();
export const emit = (type, detail) => bus.dispatchEvent(new CustomEvent(type, { detail }));
export const on = (type, act) => bus.addEventListener(type, (event) => act(event.detail));

/** localStorage that never throws: it may be blocked or full. */
export const keep = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); return true; } catch { return false; } },
  remove(key) { try { localStorage.removeItem(key); } catch { /* blocked */ } },
};

export const store = { state: null, holder: "", annotator: keep.get("anneal.annotator") || "me",
  bands: "" };      // bands: chosen for display; empty for those that the archive is read with
export const who = (more = {}) => new URLSearchParams({ annotator: store.annotator, holder: store.holder, ...more });

export function setAnnotator(name) {
  store.annotator = name;
  keep.set("anneal.annotator", name);
  emit("annotator", name);
}

export function accept(state) {
  // This address serves another campaign now, and this page is about the old one.
  if (store.state && store.state.id !== state.id) {
    location.reload();
    throw new ApiError(0, "Another campaign is served here now.");    // the reload takes a moment
  }
  store.state = state;
  emit("state", state);
}

// Images are cached for ever by address, so the address names the campaign.
const of = () => `?of=${encodeURIComponent(store.state?.id ?? "")}`;
const shown = () => (store.bands ? `&bands=${encodeURIComponent(store.bands)}` : "");
export const imageUrl = (id) => `/api/images/${id}${of()}${shown()}`;
export const aboutUrl = (id) => `/api/images/${id}/about${of()}`;
export const regionUrl = (id, region) => `/api/images/${id}/region${of()}&${new URLSearchParams(region)}${shown()}`;
export const thumbUrl = (id) => `/api/thumbs/${id}${of()}`;

/** status 0: the server could not be reached. */
export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export function reason(data, status) {
  const detail = data?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((one) => one.msg ?? String(one)).join("; ");
  return `The server answered with status ${status}.`;
}

export async function api(path, { method = "GET", json, body, type, timeout = 20000 } = {}) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), timeout);
  if (json) [body, type] = [JSON.stringify(json), "application/json"];
  try {
    const headers = type ? { "content-type": type } : {};
    const response = await fetch(path, { method, body, headers, signal: stop.signal, cache: "no-store" });
    const data = await response.json().catch(() => null);
    if (!response.ok) throw new ApiError(response.status, reason(data, response.status));
    if (data === null) throw new ApiError(0, "The server's answer was cut off.");
    return data;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(0, "No connection to the server.");
  } finally {
    clearTimeout(timer);
  }
}

/** kind: "up", "down" (will come back), "token" (a token is needed) or "refused" (the server says no). */
export const connection = { kind: "up", text: "" };

export function setConnection(kind, text = "") {
  if (connection.kind === kind && connection.text === text) return;
  Object.assign(connection, { kind, text });
  emit("connection", connection);
}

export function connectionLost(error) {
  if (!(error instanceof ApiError)) console.error(error);
  const status = error.status ?? 0;
  if (status === 401) setConnection("token", error.message);
  else if (status === 0 || status >= 500) setConnection("down");
  else setConnection("refused", error.message);
}
