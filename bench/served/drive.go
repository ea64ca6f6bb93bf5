package served

import (
	"context"
	"errors"
	"path/filepath"

	"inferplan/formats"
)

// Drive serves plan.json of the program's folder over HTTP, waits until a path of it answers, drives it with plan load, and returns the
// report of the load. serve and load are further flags.
func (p Program) Drive(ctx context.Context, ready string, serve, load []string) (*formats.Report, error) {
	s, err := p.Serve(ctx, append([]string{"plan.json", "--http", "127.0.0.1:0", "--metrics", "off"}, serve...)...)
	if err != nil {
		return nil, err
	}
	if err = Answers(ctx, "http://"+s.HTTP+ready); err == nil {
		err = p.Run(ctx, append([]string{"load", "http://" + s.HTTP, "--plan", "plan.json", "-o", "served.json"}, load...)...)
	}
	if err := errors.Join(err, s.Stop()); err != nil {
		return nil, err
	}
	return formats.ReadReport(filepath.Join(p.Folder, "served.json"))
}

// Simulate simulates plan.json of the program's folder with further flags and returns the report.
func (p Program) Simulate(ctx context.Context, flags ...string) (*formats.Report, error) {
	if err := p.Run(ctx, append([]string{"simulate", "plan.json", "-o", "simulated.json"}, flags...)...); err != nil {
		return nil, err
	}
	return formats.ReadReport(filepath.Join(p.Folder, "simulated.json"))
}
