package usage

import "time"

// Sample is how full the filesystem of a claim was at one time.
type Sample struct {
	// At is when the answer was read.
	At time.Time
	// Bytes and Inodes of the filesystem.
	Bytes, Inodes Amount
}

// Amount is what there is of something, and what of it is free. The zero value is
// an amount that is not known; a filesystem that counts no inodes says 0 of them,
// which is the same.
type Amount struct{ Total, Free int64 }

// Known says whether there is anything to judge by.
func (a Amount) Known() bool { return a.Total > 0 && a.Free >= 0 && a.Free <= a.Total }

// Used is what is not free. Of bytes that is what a writer cannot have, with what
// the filesystem keeps back for root.
func (a Amount) Used() int64 { return a.Total - a.Free }

// UsedPercent is the used part, in percent; false where it is not known.
func (a Amount) UsedPercent() (float64, bool) {
	if !a.Known() {
		return 0, false
	}
	return float64(a.Used()) * 100 / float64(a.Total), true
}
