package main

import (
	"encoding/json"
	"fmt"

	"inferplan/bench/kept"
	"inferplan/cputime"
)

// keep holds results by key. Those of another build of this program are measured
// again.
type keep struct {
	program string
	lines   *kept.Lines
	values  map[string]keptLine
	spent   float64 // seconds of CPU of the results that were asked for, now or before
}

type keptLine struct {
	Program string          `json:"program"`
	Key     string          `json:"key"`
	CPU     float64         `json:"cpu_s"`
	Value   json.RawMessage `json:"value"`
}

func openKeep(path string, fresh bool) (*keep, error) {
	k := &keep{values: map[string]keptLine{}}
	var err error
	if k.program, err = kept.Program(); err != nil {
		return nil, fmt.Errorf("reading this program: %w", err)
	}
	k.lines, err = kept.Open(path, fresh, func(line []byte) error {
		var l keptLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if l.Program == k.program {
			k.values[l.Key] = l
		}
		return nil
	})
	return k, err
}

// measured is the kept result of a key, or that of measure, which is kept then.
func measured[T any](k *keep, key string, measure func() (T, error)) (T, error) {
	var out T
	if line, ok := k.values[key]; ok {
		if err := json.Unmarshal(line.Value, &out); err != nil {
			return out, fmt.Errorf("reading the earlier result %s: %w", key, err)
		}
		k.spent += line.CPU
		return out, nil
	}
	began := cputime.Used()
	out, err := measure()
	spent := (cputime.Used() - began).Seconds()
	k.spent += spent
	if err != nil {
		return out, fmt.Errorf("%s: %w", key, err)
	}
	text, err := json.Marshal(out)
	if err == nil {
		err = k.lines.Add(keptLine{k.program, key, spent, text})
	}
	return out, err
}
