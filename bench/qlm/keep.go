package main

import (
	"encoding/json"
	"fmt"

	"inferplan/bench/kept"
)

// keep holds results by key. Those of another build of this program are measured
// again.
type keep struct {
	program string
	lines   *kept.Lines
	values  map[string]json.RawMessage
}

type keptLine struct {
	Program string          `json:"program"`
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`
}

func openKeep(path string, fresh bool) (*keep, error) {
	k := &keep{values: map[string]json.RawMessage{}}
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
			k.values[l.Key] = l.Value
		}
		return nil
	})
	return k, err
}

// measured is the kept result of a key, or that of measure, which is kept then.
func measured[T any](k *keep, key string, measure func() (T, error)) (T, error) {
	var out T
	if text, ok := k.values[key]; ok {
		if err := json.Unmarshal(text, &out); err != nil {
			return out, fmt.Errorf("reading the earlier result %s: %w", key, err)
		}
		return out, nil
	}
	out, err := measure()
	if err != nil {
		return out, fmt.Errorf("%s: %w", key, err)
	}
	text, err := json.Marshal(out)
	if err == nil {
		err = k.lines.Add(keptLine{k.program, key, text})
	}
	return out, err
}
