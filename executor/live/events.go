package live

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/formats/served"
)

// Bounds of what an EventLog holds.
const (
	maxEvents     = 30
	maxEventRunes = 300
)

// EventLog holds the last messages of a log, without those for debugging: a plan applied, a worker lost or back, a drift noticed, a
// server gone.
type EventLog struct {
	mu     sync.Mutex
	events []served.Event // at most maxEvents, the oldest first
}

// Add adds an event. One that repeats the newest counts as that one.
func (l *EventLog) Add(at time.Time, level slog.Level, text string) {
	if runes := []rune(text); len(runes) > maxEventRunes {
		text = string(runes[:maxEventRunes]) + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.events); n > 0 && l.events[n-1].Text == text && l.events[n-1].Level == levelName(level) {
		l.events[n-1].Times++
		l.events[n-1].At = at
		return
	}
	l.events = append(l.events, served.Event{At: at, Level: levelName(level), Text: text, Times: 1})
	l.events = slices.Delete(l.events, 0, max(0, len(l.events)-maxEvents))
}

// Newest returns the events, the newest first.
func (l *EventLog) Newest() []served.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := append([]served.Event{}, l.events...)
	slices.Reverse(out)
	return out
}

// levelName returns the name of a level for people.
func levelName(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}

// Handler returns a handler of a log that adds each message to the events, unless it is for debugging, and passes it on to next, if next
// wants it.
func (l *EventLog) Handler(next slog.Handler) slog.Handler {
	return &eventHandler{events: l, next: next}
}

// eventHandler implements slog.Handler.
type eventHandler struct {
	events *EventLog
	next   slog.Handler
	attrs  string // those that the logger has, as text
}

// Enabled implements slog.Handler.
func (h *eventHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *eventHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		var text strings.Builder
		text.WriteString(r.Message + h.attrs)
		r.Attrs(func(a slog.Attr) bool { text.WriteString(attrText(a)); return true })
		h.events.Add(r.Time, r.Level, text.String())
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// attrText returns an attribute behind a message.
func attrText(a slog.Attr) string { return fmt.Sprintf(", %s %v", a.Key, a.Value.Resolve()) }

// WithAttrs implements slog.Handler.
func (h *eventHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	text := h.attrs
	for _, a := range attrs {
		text += attrText(a)
	}
	return &eventHandler{h.events, h.next.WithAttrs(attrs), text}
}

// WithGroup implements slog.Handler. Events show attributes without their groups.
func (h *eventHandler) WithGroup(name string) slog.Handler {
	return &eventHandler{h.events, h.next.WithGroup(name), h.attrs}
}
