package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
)

// planFile is the file of the plan.
type planFile struct {
	path string

	mu      sync.Mutex
	inForce string      // hash of the plan in force
	seen    fs.FileInfo // state of the file when it was hashed last
	hash    string      // hash of the file then
}

// read reads the plan and its hash. If the file is written meanwhile, it is read again.
func (f *planFile) read() (*formats.Plan, string, error) {
	for tries := 3; ; tries-- {
		before, err := document.Digest(f.path)
		if err != nil {
			before = "" // reading the plan returns a better error
		}
		plan, err := formats.ReadPlan(f.path)
		if err != nil {
			return nil, "", err
		}
		after, err := document.Digest(f.path)
		if err != nil {
			return nil, "", fmt.Errorf("hash the plan: %w", err)
		}
		if before == after {
			return plan, after, nil
		}
		if tries == 0 {
			return nil, "", fmt.Errorf("%s was written while it was read", f.path)
		}
	}
}

// setInForce records the hash of the plan in force.
func (f *planFile) takeEffect(hash string) {
	f.mu.Lock()
	f.inForce = hash
	f.mu.Unlock()
}

// differs reports whether the file has another plan than the one in force, or cannot be read. It is hashed only if
// its size, time or inode has changed.
func (f *planFile) differs() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		f.seen = nil
		return true
	}
	if s := f.seen; s == nil || !os.SameFile(s, info) || s.Size() != info.Size() || !s.ModTime().Equal(info.ModTime()) {
		if f.hash, err = document.Digest(f.path); err != nil {
			f.seen = nil
			return true
		}
		f.seen = info
	}
	return f.hash != f.inForce
}

// series returns the gauge that shows whether the file differs.
func (f *planFile) series() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: series.Prefix + "plan_file_differs", Help: "1 while the plan's file is not the plan in force: it was changed without SIGHUP, or the switch to it failed."}, func() float64 {
		if f.differs() {
			return 1
		}
		return 0
	})
}

// maxRetryFactor bounds the wait before a failed switch is tried again, as a multiple of the first wait.
const longestRetry = 32

// putInForce switches to the plan that the file has now. If that fails for a reason that may pass, it returns a
// channel that says when to try again; otherwise it returns nil.
func (s *servers) putInForce(ctx context.Context, x *Executor, file *planFile, wait time.Duration) (again <-chan time.Time) {
	err := s.switchPlan(ctx, x, file)
	log := s.opt.Log
	switch {
	case errors.Is(err, turn.ErrSwitched):
		log.Warn("the new plan is in force, and requests of the old one were refused", "error", err)
	case err != nil && mayPass(err) && wait <= longestRetry*s.opt.retryDelay && ctx.Err() == nil:
		log.Error("the plan in force stays; the switch is tried again", "in", wait, "error", err)
		again = time.After(wait)
	case err != nil:
		log.Error("the plan in force stays; SIGHUP tries again", "error", err)
	}
	if s.opt.Reloaded != nil {
		s.opt.Reloaded(err)
	}
	return again
}

// mayRetry reports whether another attempt at a switch may succeed with the same file.
func mayPass(err error) bool {
	var finding *document.Error
	return !errors.As(err, &finding) && !errors.Is(err, turn.ErrPlan) && !errors.Is(err, ErrModelHash) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, turn.ErrClosed)
}

// switchPlan reads the plan's file and puts the plan in force, unless it is in force already.
func (s *servers) switchPlan(ctx context.Context, x *Executor, file *planFile) error {
	plan, next, err := file.read()
	if err != nil {
		return err
	}
	file.mu.Lock()
	same := next == file.inForce
	file.mu.Unlock()
	if same {
		s.opt.Log.Info("the plan's file has not changed", "plan", file.path)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.opt.StartTimeout)
	defer cancel()
	err = x.Reload(ctx, plan, next)
	if err == nil || errors.Is(err, turn.ErrSwitched) {
		file.takeEffect(next)
		s.opt.Log.Info("switched to the new plan", "plan", file.path, "sha256", next)
	}
	return err
}
