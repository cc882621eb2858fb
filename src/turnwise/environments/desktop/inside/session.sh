# The session of one desktop: its buses, its window manager, and the programs that it is told to start, a command a line.
# It ends with its input, and all that it started ends with it.
mkdir -p -m 700 "$XDG_RUNTIME_DIR" "$XDG_CONFIG_HOME/gtk-3.0" "$XDG_CONFIG_HOME/libfm" \
  "$XDG_CONFIG_HOME/pcmanfm/default" "$XDG_CACHE_HOME" "$XDG_DATA_HOME"
printf '[Settings]\ngtk-cursor-blink=0\ngtk-enable-animations=0\ngtk-dialogs-use-header=0\n' > "$XDG_CONFIG_HOME/gtk-3.0/settings.ini"
printf 'gtk-cursor-blink = 0\n' > "$GTK2_RC_FILES"
# texts open in the editor, whatever else the machine has for them, and also where nobody made its list of programs
printf '[Default Applications]\ntext/plain=org.xfce.mousepad.desktop\n' > "$XDG_CONFIG_HOME/mimeapps.list"
printf '[config]\nterminal=lxterminal\n' > "$XDG_CONFIG_HOME/libfm/libfm.conf"
# A list: of files shown as icons its accessibility tree loses names.
printf '[ui]\nview_mode=list\n' > "$XDG_CONFIG_HOME/pcmanfm/default/pcmanfm.conf"
dbus-daemon --session --nofork --nopidfile --address="$DBUS_SESSION_BUS_ADDRESS" > /dev/null 2>&1 &
until [ -S "${DBUS_SESSION_BUS_ADDRESS#unix:path=}" ]; do sleep 0.02; done
"$1" --launch-immediately > /dev/null 2>&1 &
openbox --config-file /etc/openbox.xml --startup "touch $XDG_RUNTIME_DIR/managed" > /dev/null 2>&1 &
until [ -e "$XDG_RUNTIME_DIR/managed" ]; do sleep 0.02; done
echo ready
while read -r line; do
  sh -c "exec $line" < /dev/null > /dev/null 2>&1 &
done
