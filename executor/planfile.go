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

	"inferplan/engine/worker"
	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
)

// planFile is the file of the plan.
type planFile struct {
	path string

	mu         sync.Mutex
	inForce    string      // hash of the plan in force
	hashedInfo fs.FileInfo // state of the file when it was hashed last
	hash       string      // hash of the file then
	tried      string      // hash of the plan that changed returned true for, while it is not in force
}

// read returns the plan in the file and the file's SHA-256. The file is hashed before and after it is read; if it was
// written in between, it is read again, up to three times.
func (f *planFile) read() (*formats.Plan, string, error) {
	for remainingTries := 3; ; remainingTries-- {
		hashBefore, err := document.Digest(f.path)
		if err != nil {
			hashBefore = "" // reading the plan returns a better error
		}
		plan, err := formats.ReadPlan(f.path)
		if err != nil {
			return nil, "", err
		}
		hashAfter, err := document.Digest(f.path)
		if err != nil {
			return nil, "", fmt.Errorf("hash the plan: %w", err)
		}
		if hashBefore == hashAfter {
			return plan, hashAfter, nil
		}
		if remainingTries == 0 {
			return nil, "", fmt.Errorf("%s was written while it was read", f.path)
		}
	}
}

// setInForce records the hash of the plan in force.
func (f *planFile) setInForce(hash string) {
	f.mu.Lock()
	f.inForce = hash
	f.mu.Unlock()
}

// differs returns true if the file has another plan than the one in force, or cannot be read. It reads and hashes the
// file only if its size, time or inode has changed since it was hashed last.
func (f *planFile) differs() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == document.Stdin {
		return false // it cannot change
	}
	info, err := os.Stat(f.path)
	if err != nil {
		f.hashedInfo = nil
		return true
	}
	if s := f.hashedInfo; s == nil || !os.SameFile(s, info) || s.Size() != info.Size() || !s.ModTime().Equal(info.ModTime()) {
		if f.hash, err = document.Digest(f.path); err != nil {
			f.hashedInfo = nil
			return true
		}
		f.hashedInfo = info
	}
	return f.hash != f.inForce
}

// changed returns true once for each plan that the file has and that is not in force. A file that cannot be read has
// none.
func (f *planFile) changed() bool {
	differs := f.differs()
	f.mu.Lock()
	defer f.mu.Unlock()
	triedBefore := f.tried
	switch {
	case !differs:
		f.tried = ""
	case f.hashedInfo != nil:
		f.tried = f.hash
	}
	return f.tried != "" && f.tried != triedBefore
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
const maxRetryFactor = 32

// putInForce switches to the plan that the file has now, and logs how that went. If it fails for a reason that may pass,
// and wait has not grown too long, it returns a channel that receives after `wait`, when the caller tries again;
// otherwise it returns nil. It calls OnReloaded with the error.
func (s *servers) putInForce(ctx context.Context, x *Executor, file *planFile, wait time.Duration) (retry <-chan time.Time) {
	err := s.switchPlan(ctx, x, file)
	log := s.opt.Log
	switch {
	case errors.Is(err, turn.ErrSwitched):
		log.Warn("the new plan is in force, and requests of the old one were refused", "error", err)
	case err != nil && mayRetry(err) && wait <= maxRetryFactor*s.opt.retryDelay && ctx.Err() == nil:
		log.Error("the plan in force stays; the switch is tried again", "in", wait, "error", err)
		retry = time.After(wait)
	case err != nil:
		log.Error("the plan in force stays; SIGHUP tries again", "error", err)
	}
	if s.opt.OnReloaded != nil {
		s.opt.OnReloaded(err)
	}
	return retry
}

// mayRetry reports whether another attempt at a switch may succeed with the same file.
func mayRetry(err error) bool {
	var docErr *document.Error
	return !errors.As(err, &docErr) && !errors.Is(err, turn.ErrPlan) && !errors.Is(err, worker.ErrHash) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, turn.ErrClosed)
}

// switchPlan reads the plan's file, on SIGHUP or after a try that failed, and puts the plan in force, unless it is in
// force already. It waits up to twice the start timeout for the new plan's workers. If it returns turn.ErrSwitched, the
// new plan is in force but the old one did not end well; with any other error the old one stays.
func (s *servers) switchPlan(ctx context.Context, x *Executor, file *planFile) error {
	plan, hash, err := file.read()
	if err != nil {
		return err
	}
	file.mu.Lock()
	unchanged := hash == file.inForce
	file.mu.Unlock()
	if unchanged {
		s.opt.Log.Info("the plan's file has not changed", "plan", file.path)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.opt.StartTimeout)
	defer cancel()
	err = x.Reload(ctx, plan, hash)
	if err == nil || errors.Is(err, turn.ErrSwitched) {
		file.setInForce(hash)
		s.opt.Log.Info("switched to the new plan", "plan", file.path, "sha256", hash)
	}
	return err
}
