package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// meter shows progress of long work on stderr, and only on a terminal.
type meter struct{ bar *progressbar.ProgressBar }

func (p *printer) meter(total int64, what string) *meter {
	f, ok := p.err.(*os.File)
	if !ok || p.quiet || !term.IsTerminal(int(f.Fd())) {
		return &meter{}
	}
	return &meter{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowElapsedTimeOnFinish(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(barWidth(terminalWidth(f))),
	)}
}

// barWidth leaves room for the text beside the bar: a line that a terminal
// breaks is not drawn over.
func barWidth(columns int) int { return min(max(columns-50, 5), 30) }

// set moves the bar; a total of zero or less keeps the old one. Failing to
// draw is no reason to stop working, so errors of the bar are dropped.
func (m *meter) set(done, total int64, what string) {
	if m.bar == nil {
		return
	}
	if total > 0 {
		m.bar.ChangeMax64(total)
	}
	m.bar.Describe(what)
	_ = m.bar.Set64(done)
}

func (m *meter) finish() {
	if m.bar != nil {
		_ = m.bar.Finish()
	}
}
