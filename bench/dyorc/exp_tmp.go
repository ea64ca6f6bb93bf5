package main

import (
	"fmt"
	"os"
	"strings"
)

func (b *bench) expTable() error {
	var scenes []*scene
	for _, name := range strings.Fields(os.Getenv("SCENES")) {
		switch name {
		case "ample":
			scenes = append(scenes, scenesOf(ample, 32, 40)...)
		case "scarce":
			scenes = append(scenes, scenesOf(scarce, 8, 24)...)
		case "deadlines":
			for m, rps := range loads[0].rps {
				app := m
				if m == 3 {
					app = -1
				}
				sc := sceneOf(app, rps, 32, 40)
				sc.Scale = 1.2
				scenes = append(scenes, sc)
			}
		default:
			var app int
			var rps, gb float64
			var d int
			fmt.Sscanf(name, "%d,%g,%d,%g", &app, &rps, &d, &gb)
			scenes = append(scenes, sceneOf(app, rps, d, gb))
		}
	}
	pols := strings.Fields(os.Getenv("POLS"))
	instant := os.Getenv("INSTANT") != ""
	grid, err := b.grid(scenes, pols, false)
	if err != nil {
		return err
	}
	var in [][][]*outcome
	if instant {
		if in, err = b.grid(scenes, pols, true); err != nil {
			return err
		}
	}
	for s, sc := range scenes {
		fmt.Printf("%-10s d%d ", sc.Name, sc.Devices)
		for p := range pols {
			r := grid[s][p]
			fmt.Printf("| %s %.3f / %.2f s%.3f l%.0f b%.2f", pols[p], meanOf(r, mean), meanOf(r, p99), meanOf(r, func(o *outcome) float64 { return o.Scale99 }), meanOf(r, func(o *outcome) float64 { return o.Loads }), meanOf(r, func(o *outcome) float64 { return o.Batch }))
			if instant {
				fmt.Printf(" cold %.1f", 1000*(meanOf(r, mean)-meanOf(in[s][p], mean)))
			}
		}
		fmt.Println()
	}
	return nil
}
