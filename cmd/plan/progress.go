package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressBar shows the progress of long work on stderr: a bar on a terminal, lines elsewhere.
type progressBar struct {
	bar   *progressbar.ProgressBar // nil without a terminal
	lines *progressLines           // nil with one
}

// newProgressBar returns a progress bar on stderr that ends at total or, if stderr is no terminal, one that writes
// lines. With --quiet it shows nothing.
func (p *printer) newProgressBar(total int64, label string) *progressBar {
	if p.quiet {
		return &progressBar{}
	}
	f, ok := p.err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progressBar{lines: newProgressLines(total, p.PrintNote, time.Now)}
	}
	return &progressBar{bar: progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(label),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowElapsedTimeOnFinish(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(barWidth(terminalWidth(f))),
	)}
}

// barWidth leaves space for the text beside the bar, because a line that the terminal breaks cannot be
// overwritten.
func barWidth(columns int) int { return min(max(columns-50, 5), 30) }

// setProgress moves the bar. Errors of drawing are ignored, because they are no reason to stop the work.
func (m *progressBar) setProgress(done int64, label string) {
	switch {
	case m.bar != nil:
		m.bar.Describe(label)
		_ = m.bar.Set64(done)
	case m.lines != nil:
		m.lines.setProgress(done, label)
	}
}

func (m *progressBar) finish() {
	if m.bar != nil {
		_ = m.bar.Finish()
	}
}

// lineInterval is the least time between two lines of progress, and before the first.
const lineInterval = 10 * time.Second

// progressLines writes progress to a log, such as that of a CI job: one line for each phase, at most one in
// lineInterval. Work that ends sooner writes none.
type progressLines struct {
	total           int64
	write           func(format string, args ...any)
	now             func() time.Time
	startedAt, last time.Time
	written         map[string]bool // phases that have their line
}

func newProgressLines(total int64, write func(format string, args ...any), now func() time.Time) *progressLines {
	return &progressLines{total: total, write: write, now: now, startedAt: now(), last: now(), written: map[string]bool{}}
}

// setProgress writes a line if the phase has none and the last one is long enough ago.
func (l *progressLines) setProgress(done int64, phase string) {
	now := l.now()
	if l.written[phase] || now.Sub(l.last) < lineInterval {
		return
	}
	l.written[phase], l.last = true, now
	l.write("%s: %d %% after %s", phase, 100*done/max(l.total, 1), now.Sub(l.startedAt).Round(time.Second))
}
