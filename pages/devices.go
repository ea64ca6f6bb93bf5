package pages

import (
	"fmt"
	"strings"

	"inferplan/formats"
)

// DeviceRow is a bar for a group of devices with the same parts.
type DeviceRow struct {
	Name  string // such as "3 x L4"
	Parts []DevicePart
	Names string // the parts with their shares, and what is unused
}

// DevicePart is a part of a bar.
type DevicePart struct {
	Label  string
	Text   string // the label with the shares
	Share  float64
	Colour int // the same for the same label in all rows
}

// DeviceRows returns what runs where: a row for each group of devices.
func DeviceRows(p *formats.Plan) []DeviceRow {
	colours := map[string]int{}
	var out []DeviceRow
	for _, g := range p.Layout() {
		row := DeviceRow{Name: fmt.Sprintf("%d x %s", g.Count, g.Device)}
		var names []string
		for _, part := range g.Parts {
			if _, isKnown := colours[part.Label]; !isKnown {
				colours[part.Label] = len(colours)
			}
			text := part.Label
			if part.Share > 0 {
				text += ", " + shareText(part.Share, g.SharesTime)
			}
			if part.Busy > 0 {
				text += fmt.Sprintf(", busy %.0f %%", 100*part.Busy)
			}
			names = append(names, text)
			row.Parts = append(row.Parts, DevicePart{part.Label, text, part.Share, colours[part.Label]})
		}
		if g.UnusedShare > .005 {
			names = append(names, "unused "+shareText(g.UnusedShare, g.SharesTime))
		}
		row.Names = strings.Join(names, "; ")
		out = append(out, row)
	}
	return out
}

// shareText says which share of a device something has.
func shareText(share float64, ofTime bool) string {
	if ofTime {
		return fmt.Sprintf("%.0f %% of the time", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// String returns the row as text.
func (r *DeviceRow) String() string { return r.Name + ": " + r.Names }

// barColumns is the width of a bar of text.
const barColumns = 40

// partLetters stand for the parts of a bar of text, in turns.
const partLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// DeviceLines draws what runs where with letters: a bar for each group of devices, and below it a line for each letter.
// Dots mark unused shares of a device.
func DeviceLines(p *formats.Plan) []string {
	var out []string
	for _, row := range DeviceRows(p) {
		var bar strings.Builder
		drawn, share := 0, 0.0
		for _, part := range row.Parts {
			share += part.Share
			columns := min(max(int(share*barColumns+.5)-drawn, 1), max(barColumns-drawn, 0))
			bar.WriteString(strings.Repeat(partLetters[part.Colour%len(partLetters):][:1], columns))
			drawn += columns
		}
		bar.WriteString(strings.Repeat(".", barColumns-drawn))
		out = append(out, fmt.Sprintf("[%s] %s", bar.String(), row.Name))
		for _, part := range row.Parts {
			out = append(out, fmt.Sprintf("  %s %s", partLetters[part.Colour%len(partLetters):][:1], part.Text))
		}
	}
	return out
}
