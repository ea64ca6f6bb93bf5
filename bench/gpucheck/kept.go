package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// keptIn is the file for what a step has found so far, and at its end for its
// result: a step that is killed in the midst leaves that, and goes on from there.
func keptIn(out string) string { return filepath.Join(out, "gpu-check-step.json") }

func (r *StepResult) keep(out string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return replace(keptIn(out), append(data, '\n'))
}

func readKept(out string) (*StepResult, error) {
	data, err := os.ReadFile(keptIn(out))
	if err != nil {
		return nil, err
	}
	r := &StepResult{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", keptIn(out), err)
	}
	return r, nil
}

// mirrorEvery is how often the results are copied to Options.Mirror.
const mirrorEvery = 10 * time.Second

// mirror copies the results again and again until it is told to end, so that a
// call that is killed leaves what it found, too.
func mirror(ctx context.Context, o *Options) (end func()) {
	if o.Mirror == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				copyResults(o)
				return
			case <-time.After(mirrorEvery):
				copyResults(o)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func copyResults(o *Options) {
	err := os.MkdirAll(o.Mirror, 0o755)
	files, gerr := filepath.Glob(filepath.Join(o.Out, "*.*"))
	err = errors.Join(err, gerr)
	for _, f := range files {
		if name := filepath.Base(f); strings.HasSuffix(name, ".part") || name[0] == '.' || name == againFile {
			continue
		}
		data, rerr := os.ReadFile(f)
		if rerr == nil {
			rerr = replace(filepath.Join(o.Mirror, filepath.Base(f)), data)
		} else if errors.Is(rerr, os.ErrNotExist) { // a step has ended meanwhile
			rerr = nil
		}
		err = errors.Join(err, rerr)
	}
	// What the folder no longer holds was for a step under way only.
	if _, serr := os.Stat(keptIn(o.Out)); errors.Is(serr, os.ErrNotExist) {
		_ = os.Remove(keptIn(o.Mirror))
	}
	if err != nil {
		fmt.Fprintf(o.Log, "copy of the results to %s: %v\n", o.Mirror, err)
	}
}
