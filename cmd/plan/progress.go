package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressBar shows the progress of long work on stderr, and only on a terminal.
type progressBar struct{ bar *progressbar.ProgressBar }

// newProgressBar returns a progress bar on stderr that ends at total or, if stderr is no terminal or --quiet is
// given, one that shows nothing.
func (p *printer) newProgressBar(total int64, label string) *progressBar {
	f, ok := p.err.(*os.File)
	if !ok || p.quiet || !term.IsTerminal(int(f.Fd())) {
		return &progressBar{}
	}
	return &progressBar{progressbar.NewOptions64(total,
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
	if m.bar == nil {
		return
	}
	m.bar.Describe(label)
	_ = m.bar.Set64(done)
}

func (m *progressBar) finish() {
	if m.bar != nil {
		_ = m.bar.Finish()
	}
}
