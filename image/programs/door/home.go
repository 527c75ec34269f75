package main

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"time"
)

const (
	// In bytes: the file with what is an attendee's. image/workspace/pack-files makes none that is larger.
	largestFiles = 64 << 20
	// It has come within so long, from the workspace and to the browser.
	filesPatience = 10 * time.Minute
	// Stands where the teacher has told no address of a clone.
	noAddress = "ADDRESS"
)

// What the last page says to an attendee.
type takenHome struct {
	File, Address string
	HasAddress    bool
}

// Shows how the place comes up at home, or brings what its attendee takes there.
func (d *door) takeHome(w http.ResponseWriter, r *http.Request, now *state, isFile bool) {
	cookie := cookieOf(r, browserCookie)
	chosen := now.placeOf(cookie)
	if chosen == nil {
		d.welcome(w, r, now, http.StatusForbidden, "This browser has no place here, and so no files.")
		return
	}
	if isFile {
		d.bringFiles(w, r, now, cookie, chosen)
		return
	}
	page{
		Title:   now.Title,
		Heading: "Take your files home",
		Home:    &takenHome{filesOf(chosen), cmp.Or(now.Home, noAddress), now.Home != ""},
	}.write(w, http.StatusOK)
}

// Brings the browser the file with what is its attendee's, as the workspace has packed it.
func (d *door) bringFiles(w http.ResponseWriter, r *http.Request, now *state, cookie string, chosen *place) {
	ctx, leave := context.WithTimeout(r.Context(), filesPatience)
	defer leave()
	go d.room.watch(ctx, cookie, chosen, leave)
	header := w.Header()
	// The deadlines are for this one answer.
	header.Set("Connection", "close")
	if r.ContentLength == 0 {
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Now().Add(filesPatience))
		control.SetWriteDeadline(time.Now().Add(filesPatience))
	}
	answer, err := d.ways.to(chosen).file(ctx, d.files)
	problem := page{Title: now.Title, Heading: "Your files can't be had"}
	switch {
	case err != nil:
		problem.Text = "Your workspace does not answer. Go back and try again in a moment."
		problem.write(w, http.StatusServiceUnavailable)
		return
	case answer == nil:
		problem.Text = "Nothing is packed. In the editor, press F1 and choose “Ray: Take My Files Home”."
		problem.write(w, http.StatusNotFound)
		return
	}
	defer answer.Body.Close()
	if answer.ContentLength > largestFiles {
		problem.Text = "They are more than 64 MiB. Move data out of the folder labs, and pack again."
		problem.write(w, http.StatusBadGateway)
		return
	}
	// Whatever the workspace says that it is, no browser shows it.
	protect(header, "default-src 'none'; sandbox")
	header.Set("Content-Type", "application/gzip")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": filesOf(chosen)}))
	copied, err := io.Copy(w, io.LimitReader(answer.Body, largestFiles+1))
	if err != nil || copied > largestFiles {
		// The browser is to see that it has not come whole.
		panic(http.ErrAbortHandler)
	}
}

func filesOf(chosen *place) string { return chosen.Name + ".tar.gz" }
